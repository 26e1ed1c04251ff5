"""vLLM's executor interface over a cost model.

A step is planned in ``execute_model`` (who is scheduled, when the device will be done) and its tokens are drawn in
``sample_tokens``; the future of the result waits until the simulated device is done. Steps queue on the device one
after the other, as on a real one, so vLLM's asynchronous scheduling overlaps its own work with them.

Not modelled: pooling, log-probabilities, LoRA, speculative decoding, models with other than full attention.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future
from typing import Any, TextIO

from vllm.logger import init_logger
from vllm.tokenizers import get_tokenizer
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from .sampler import CLOSERS, Sampler
from .settings import Device, StepWork

logger = init_logger("vllm.concur_vllmsim")

PLENTY = 1 << 40
"""Bytes of memory; --num-gpu-blocks-override sets the size of the cache."""


class DeviceFuture(Future):
    """A result that is there from a moment of the monotonic clock on."""

    def __init__(self, value: Any, done_at: float) -> None:
        super().__init__()
        self._value, self._done_at = value, done_at

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            time.sleep(max(0.0, self._done_at - time.monotonic()))
            self.set_result(self._value)
        return super().result()


def _at_once(value: Any, *, non_block: bool) -> Any:
    return DeviceFuture(value, 0.0) if non_block else value


class Plan:
    """One step: which requests are in it, which of them get a token, and when the device is done with it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.sampled: list[bool] = []
        self.work = StepWork()
        self.done_at = 0.0

    def add(self, request: str, *, computed: int, scheduled: int, prompt: int, total: int) -> None:
        self.requests.append(request)
        self.sampled.append(computed + scheduled >= total)
        self.work.add(computed=computed, scheduled=scheduled, prompt=prompt)


class SimulatedExecutor(Executor):
    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _init_executor(self) -> None:
        self._device = device = Device.read(os.environ)
        self._sampler = self._make_sampler(device)
        self._free_at = 0.0
        self._prompts: dict[str, int] = {}
        self._plan: Plan | None = None
        self._trace: TextIO | None = open(device.trace, "a", buffering=1) if device.trace else None
        logger.info("simulated device: %s", device)

    def _make_sampler(self, device: Device) -> Sampler:
        with open(device.words) as file:
            words = json.load(file)
        encode = get_tokenizer(self.model_config.tokenizer).encode
        return Sampler(
            words=list(words.values()),
            closers=[ids[0] for ids in map(encode, CLOSERS) if len(ids) == 1],
            quote=encode('"')[0],
            end=self.model_config.hf_text_config.eos_token_id,
            end_probability=device.end_probability,
            seed=self.model_config.seed,
        )

    # What vLLM asks at the start

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        model, parallel = self.model_config, self.parallel_config
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=model.get_num_kv_heads(parallel),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        return [{f"model.layers.{i}.self_attn.attn": spec for i in range(model.get_num_layers(parallel))}]

    def determine_available_memory(self) -> list[int]:
        return [PLENTY]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBHNC", "LBNHC"]]

    @property
    def supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        """No workers: whatever they would be told has no effect, and they have nothing to say."""
        return _at_once([None], non_block=non_block)

    def compile_or_warm_up_model(self) -> None:
        """Nothing to compile."""

    def check_health(self) -> None:
        """Always well."""

    def shutdown(self) -> None:
        if self._trace:
            self._trace.close()

    # Steps

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        for request in scheduler_output.finished_req_ids:
            self._prompts.pop(request, None)
        if not scheduler_output.total_num_scheduled_tokens:
            return _at_once(EMPTY_MODEL_RUNNER_OUTPUT, non_block=non_block)
        self._plan = self._make_plan(scheduler_output)
        return _at_once(None, non_block=non_block)  # None: ask sample_tokens

    def _make_plan(self, output: SchedulerOutput) -> Plan:
        plan, scheduled = Plan(), output.num_scheduled_tokens
        for new in output.scheduled_new_reqs:
            prompt = self._prompts[new.req_id] = new.prompt_len
            total = max(prompt, len(new.prefill_token_ids or ()))
            plan.add(
                new.req_id,
                computed=new.num_computed_tokens,
                scheduled=scheduled[new.req_id],
                prompt=prompt,
                total=total,
            )
        known = output.scheduled_cached_reqs
        for request, computed, said in zip(
            known.req_ids, known.num_computed_tokens, known.num_output_tokens, strict=True
        ):
            prompt = self._prompts[request]
            plan.add(request, computed=computed, scheduled=scheduled[request], prompt=prompt, total=prompt + said)
        self._schedule(plan)
        return plan

    def _schedule(self, plan: Plan) -> None:
        now = time.monotonic()
        took = self._device.costs.seconds(plan.work) / self._device.speed
        plan.done_at = self._free_at = max(now, self._free_at) + took
        if self._trace:
            work = plan.work
            line = {"at": now, "took": took, "requests": len(plan.requests), "prefilled": work.prefilled}
            self._trace.write(json.dumps({**line, "decodes": work.decodes, "context": work.context}) + "\n")

    def sample_tokens(self, grammar_output: GrammarOutput | None, non_block: bool = False) -> Any:
        plan, self._plan = self._plan, None
        if plan is None:
            return _at_once(EMPTY_MODEL_RUNNER_OUTPUT, non_block=non_block)
        future = DeviceFuture(self._draw(plan, grammar_output), plan.done_at)
        return future if non_block else future.result()

    def _draw(self, plan: Plan, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        rows = (
            dict(zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=False)) if grammar else {}
        )
        tokens: list[list[int]] = []
        for request, sampled in zip(plan.requests, plan.sampled, strict=True):
            if not sampled:
                tokens.append([])
            elif request in rows:
                tokens.append([self._sampler.guided(rows[request])])
            else:
                tokens.append([self._sampler.free()])
        return ModelRunnerOutput(
            req_ids=plan.requests,
            req_id_to_index={request: index for index, request in enumerate(plan.requests)},
            sampled_token_ids=tokens,
        )

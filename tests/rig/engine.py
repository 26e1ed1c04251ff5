"""Real engines for tests and benchmarks, on loopback, one ``with`` each.

    with RigEngine("vllm", kv_tokens=32_768, speed=8) as engine:
        httpx.post(f"{engine.url}/v1/chat/completions", json={"model": engine.model, ...})

On the command line: ``python -m tests.rig.engine --kind vllm --port 8000`` runs one in the foreground.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from concur_proxy.fleet import warden
from tests.ports import free_port
from tests.rig import llamacpp, sglang
from tests.rig.environments import RECIPES, Environment, Model, default_folder, missing
from tests.rig.vllmsim.concur_vllmsim.settings import Device, StepCosts

MODEL_NAME = "tiny"
PLUGIN = Path(__file__).resolve().parent / "vllmsim"
BLOCK_TOKENS = {"vllm": 16, "vllm-cpu": 32}
GRACE_S = 10.0
POLL_S = 0.1

QUIET = {  # nothing goes out of this machine, nothing competes for its few cores
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_CI_ENV": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


class RigError(Exception):
    """The rig is not prepared, or its engine did not come up; the message has the remedy or the end of its log."""


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is started with."""

    kind: str = "vllm"
    kv_tokens: int = 32_768
    """Size of the KV cache; a multiple of the block size (16; 32 for vllm-cpu)."""
    max_len: int = 8192
    max_seqs: int = 256
    token_budget: int = 2048
    """Tokens of one step (vLLM's max-num-batched-tokens)."""
    prompt_tokens_details: bool = True
    """Whether responses carry ``cached_tokens``."""
    speed: float = 1.0
    """How many times faster than real time the simulated device is (vllm only)."""
    costs: StepCosts = field(default_factory=StepCosts)
    end_probability: float = 0.0
    trace: str | None = None
    extra_flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=default_folder)

    @property
    def python(self) -> Path:
        return Environment(self.kind, self.folder).python

    @property
    def model_folder(self) -> Path:
        return Model(self.folder).root

    def arguments(self) -> list[str]:
        """Flags of the engine, without its address and model."""
        blocks = self.kv_tokens // BLOCK_TOKENS[self.kind] + 1  # block 0 is vLLM's null block
        flags = [
            *("--served-model-name", MODEL_NAME),
            *("--max-model-len", str(self.max_len)),
            *("--max-num-seqs", str(self.max_seqs)),
            *("--max-num-batched-tokens", str(self.token_budget)),
            *("--block-size", str(BLOCK_TOKENS[self.kind])),
            *("--num-gpu-blocks-override", str(blocks)),
            *("--seed", "0"),
            *("--tool-call-parser", "hermes"),
            "--enable-auto-tool-choice",
            "--enforce-eager",
            "--enable-prefix-caching",
            "--disable-uvicorn-access-log",
        ]
        if self.prompt_tokens_details:
            flags.append("--enable-prompt-tokens-details")
        if self.kind == "vllm-cpu":
            flags += ["--dtype", "float32"]
        return [*flags, *self.extra_flags]

    def variables(self) -> dict[str, str]:
        """Environment variables beyond the present ones."""
        if self.kind == "vllm-cpu":
            return QUIET | CPU | self.environment
        device = Device(
            words=str(self.model_folder / "words.json"),
            costs=self.costs,
            speed=self.speed,
            end_probability=self.end_probability,
            trace=self.trace,
        )
        path = os.pathsep.join(filter(None, (str(PLUGIN), os.environ.get("PYTHONPATH"))))
        return QUIET | device.variables() | {"PYTHONPATH": path} | self.environment

    def missing(self) -> str | None:
        """What to do where the rig has not this kind; None where it has."""
        return missing(self.kind, self.folder)

    def command(self, port: int) -> list[str]:
        # The module, not the `vllm` command: vllm-cpu's looks for a distribution of another name.
        server = [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        address = ["--model", str(self.model_folder), "--host", "127.0.0.1", "--port", str(port)]
        return [*server, *address, *self.arguments()]


class RigEngine:
    """An engine that runs from entering to leaving the context.

    Keyword arguments are the fields of ``EngineOptions``.

    Raises ``RigError`` where the rig is not prepared and when the engine does not become healthy within ``deadline_s``.
    """

    def __init__(self, kind: str = "vllm", *, port: int = 0, deadline_s: float = 180.0, **options: object) -> None:
        self.options = replace(EngineOptions(kind), **options)  # type: ignore[arg-type]
        self.port = port or free_port()
        self.started_in_s = 0.0
        """From the start of the process to the first healthy answer."""
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        return MODEL_NAME

    @property
    def words(self) -> list[str]:
        """Words that are one token each after a space, and come back as the same token."""
        return list(json.loads((self.options.model_folder / "words.json").read_text()))

    def log(self, last: int = 60) -> str:
        """The last lines of what the engine printed."""
        if self._log is None:
            return ""
        return b"\n".join(Path(self._log.name).read_bytes().splitlines()[-last:]).decode(errors="replace")

    def __enter__(self) -> Self:
        if remedy := self.options.missing():
            raise RigError(remedy)
        self._log = tempfile.NamedTemporaryFile(prefix="rig-engine-", suffix=".log")
        self._process = subprocess.Popen(
            warden.command(self.options.command(self.port), grace_s=GRACE_S),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | self.options.variables(),
            start_new_session=True,
        )
        try:
            self._wait_until_healthy(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the engine and everything it started; twice does no harm."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        while not self._healthy():
            if (status := process.poll()) is not None:
                raise RigError(f"the engine ended with status {status} while starting:\n{self.log()}")
            if time.monotonic() - started > self._deadline_s:
                raise RigError(f"the engine was not healthy after {self._deadline_s:.0f} s:\n{self.log()}")
            time.sleep(POLL_S)
        self.started_in_s = time.monotonic() - started

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass(frozen=True)
class LlamaOptions(EngineOptions):
    """llama.cpp's server; of the other options ``kv_tokens`` and ``folder`` count."""

    kind: str = llamacpp.KIND
    kv_tokens: int = 16_384
    slots: int = 4
    """Requests that it works on at once; the cache is theirs together."""
    threads: int = 1

    def missing(self) -> str | None:
        return llamacpp.missing(self.folder)

    def variables(self) -> dict[str, str]:
        return QUIET | self.environment

    def command(self, port: int) -> list[str]:
        there = llamacpp.LlamaEnvironment(self.folder)
        script = Path(llamacpp.__file__).with_name("llamacpp_server.py")
        numbers = (port, self.kv_tokens, self.slots, self.threads)
        return [str(there.python), str(script), str(there.weights), *map(str, numbers)]


class LlamaEngine(RigEngine):
    """llama.cpp's server. Keyword arguments are the fields of ``LlamaOptions``."""

    def __init__(self, *, port: int = 0, deadline_s: float = 60.0, **options: object) -> None:
        super().__init__(port=port, deadline_s=deadline_s)
        self.options = replace(LlamaOptions(), **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SglangOptions(EngineOptions):
    """SGLang on the CPU; speed, costs, end_probability and trace do not count."""

    kind: str = sglang.KIND
    kv_tokens: int = 16_384

    def missing(self) -> str | None:
        return sglang.missing(self.folder)

    def variables(self) -> dict[str, str]:
        return QUIET | {"SGLANG_USE_CPU_ENGINE": "1"} | self.environment

    def arguments(self) -> list[str]:
        flags = [
            *("--served-model-name", MODEL_NAME),
            *("--context-length", str(self.max_len)),
            *("--max-running-requests", str(self.max_seqs)),
            *("--chunked-prefill-size", str(self.token_budget)),
            *("--max-total-tokens", str(self.kv_tokens)),
            *("--random-seed", "0"),
            *("--tool-call-parser", "hermes"),
            *("--device", "cpu"),
            *("--dtype", "float32"),
            *("--attention-backend", "torch_native"),
            *("--sampling-backend", "pytorch"),
            "--disable-cuda-graph",
            "--disable-overlap-schedule",
            "--skip-server-warmup",
            "--enable-metrics",
        ]
        if self.prompt_tokens_details:
            flags.append("--enable-cache-report")
        return [*flags, *self.extra_flags]

    def command(self, port: int) -> list[str]:
        # Safe path: the folder of the script has a module of the engine's name.
        server = [str(self.python), "-P", str(Path(sglang.__file__).with_name("sglang_server.py"))]
        address = ["--model-path", str(self.model_folder), "--host", "127.0.0.1", "--port", str(port)]
        return [*server, *address, *self.arguments()]


class SglangEngine(RigEngine):
    """SGLang. Keyword arguments are the fields of ``SglangOptions``."""

    def __init__(self, *, port: int = 0, deadline_s: float = 300.0, **options: object) -> None:
        super().__init__(port=port, deadline_s=deadline_s)
        self.options = replace(SglangOptions(), **options)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.rig.engine",
        description="Run a rig engine in the foreground. Flags after -- go to the engine.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--kind", choices=sorted(RECIPES), default="vllm", help="which engine")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1")
    parser.add_argument("--kv-tokens", type=int, default=32_768, help="size of the KV cache")
    parser.add_argument("--max-len", type=int, default=8192, help="longest context")
    parser.add_argument("--max-seqs", type=int, default=256, help="most requests in a step")
    parser.add_argument("--token-budget", type=int, default=2048, help="most tokens in a step")
    parser.add_argument("--speed", type=float, default=1.0, help="times real time (vllm)")
    parser.add_argument("--costs", type=json.loads, default={}, help='e.g. {"step": 0.01, "token": 4e-5} (vllm)')
    parser.add_argument("--end-probability", type=float, default=0.0, help="chance of each token to be the last (vllm)")
    parser.add_argument("--trace", help="file that gets a line per step (vllm)")
    parser.add_argument(
        "--no-prompt-tokens-details", dest="prompt_tokens_details", action="store_false", help="as it says"
    )
    parser.add_argument("extra_flags", nargs="*", help="flags of the engine")
    chosen = vars(parser.parse_args(arguments))
    port, kind, costs = chosen.pop("port"), chosen.pop("kind"), StepCosts(**chosen.pop("costs"))
    options = replace(EngineOptions(kind), costs=costs, **{**chosen, "extra_flags": tuple(chosen["extra_flags"])})
    if remedy := missing(kind):
        sys.exit(remedy)
    os.execve(options.python, options.command(port), os.environ | options.variables())


if __name__ == "__main__":
    main()

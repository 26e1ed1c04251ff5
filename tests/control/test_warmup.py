import asyncio
import json
from types import SimpleNamespace

import pytest

from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.ports import Reply, Unreached
from concur_proxy.control.target import EngineTarget
from concur_proxy.control.warmup import MAX_PREFIXES, WarmUp, read_prefixes
from concur_proxy.errors import ConfigError
from concur_proxy.model import BackendId
from tests.control.engines import FakeEngine, Page

TARGET = EngineTarget(BackendId("a"), "http://a")


def prefix(number, model="m"):
    return SimpleNamespace(path="/v1/chat/completions", model=model, body=b"%d" % number)


class Engine:
    def __init__(self, answer=None):
        self.answer = answer or Reply(200, "{}")
        self.asked = []

    async def __call__(self, target, path, body, *, timeout_s):
        self.asked.append((path, body))
        return self.answer


def prepare(engine, *, trial, prefixes=(), stand_in=True, models=("m", "lora")):
    warm_up = WarmUp(
        engine, models_of=lambda _: models, has_stand_in=lambda _: stand_in, prefixes=lambda: list(prefixes)
    )
    return asyncio.run(warm_up(TARGET, trial=trial))


def test_prefixes_of_its_models_are_replayed_in_their_order_and_ten_at_most():
    engine = Engine()
    prefixes = [prefix(0, "other"), *(prefix(number) for number in range(1, 20))]
    assert prepare(engine, trial=False, prefixes=prefixes) is None
    assert [body for _, body in engine.asked] == [b"%d" % number for number in range(1, 1 + MAX_PREFIXES)]


def test_the_only_one_that_serves_its_models_is_not_kept_back():
    engine = Engine()
    assert prepare(engine, trial=False, prefixes=[prefix(1)], stand_in=False) is None
    assert engine.asked == []


@pytest.mark.parametrize("answer", [Reply(500, ""), Reply(401, ""), Unreached("gone")])
def test_an_engine_that_cannot_be_warmed_comes_up_nevertheless(answer):
    assert prepare(Engine(answer), trial=False, prefixes=[prefix(1)]) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Reply(200, "{}"), None),
        (Reply(401, ""), None),
        (Reply(404, ""), None),
        (Reply(429, ""), None),
        (Reply(503, ""), None),
        (Reply(500, ""), "/v1/completions answers 500"),
        (Reply(502, ""), "/v1/completions answers 502"),
        (Unreached("connection refused"), "/v1/completions: connection refused"),
    ],
)
def test_a_trial_fails_only_where_the_engine_does(answer, problem):
    engine = Engine(answer)
    assert prepare(engine, trial=True) == problem
    ((path, body),) = engine.asked
    assert (path, json.loads(body)) == ("/v1/completions", {"model": "m", "prompt": "Hi", "max_tokens": 1})


def test_nothing_is_tried_where_no_model_is_known():
    engine = Engine(Reply(500, ""))
    assert prepare(engine, trial=True, models=()) is None
    assert engine.asked == []


def test_a_request_of_our_own_has_a_body_and_the_backends_key():
    async def main():
        fetch = HttpFetch()
        async with FakeEngine({"/v1/completions": Page('{"x":1}')}) as engine:
            reply = await fetch.post(engine.target(api_key="k"), "/v1/completions", b"{}", timeout_s=5.0)
            assert reply == Reply(200, '{"x":1}')
            assert engine.headers[0].startswith("post /v1/completions")
            assert "authorization: bearer k" in engine.headers[0]
            assert "content-length: 2" in engine.headers[0]
            missing = await fetch.post(engine.target(), "/nothing", b"{}", timeout_s=5.0)
            assert missing.status == 404
        assert isinstance(await fetch.post(engine.target(), "/v1/completions", b"{}", timeout_s=5.0), Unreached)
        await fetch.aclose()

    asyncio.run(main())


def test_the_file_holds_bodies_of_chat_completions(tmp_path):
    file = tmp_path / "prefixes.jsonl"
    file.write_text('{"model": "m", "messages": [], "stream": true, "max_tokens": 99}\n\n')
    (one,) = read_prefixes(str(file))
    assert (one.path, one.model) == ("/v1/chat/completions", "m")
    assert json.loads(one.body) == {"model": "m", "messages": [], "stream": False, "max_tokens": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"prefixes.jsonl:1: not valid JSON"),
        ('{"model": "m", "messages": []}\n{"model": "m"}', r"prefixes.jsonl:2: must be the body"),
        ('{"model": "m", "messages": []}\n' * 11, r"has 11 prefixes: at most 10"),
    ],
)
def test_what_is_wrong_with_the_file_is_told_with_the_line(tmp_path, text, words):
    file = tmp_path / "prefixes.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_prefixes(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prefixes(str(tmp_path / "none"))

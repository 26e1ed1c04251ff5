"""A stream of one real vLLM goes on from another: its chat template and tokeniser continue what the first one said."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import orjson
import pytest

from tests.chaos.crowd import Crowd
from tests.clients.stack import ProxyProcess, children
from tests.rig.engine import MODEL_NAME, RigEngine
from tests.rig.environments import missing

pytestmark = [pytest.mark.engine, pytest.mark.slow]
TOKENS = 150


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RigEngine]]:
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    with ExitStack() as stack:
        start = RigEngine("vllm", kv_tokens=16_384, max_len=4096), RigEngine("vllm", kv_tokens=16_384, max_len=4096)
        running = [stack.enter_context(one) for one in start]
        for one in running:  # the first request of all takes long
            asked = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
            httpx.post(f"{one.url}/v1/chat/completions", json=asked, timeout=120).raise_for_status()
        yield running


def test_a_stream_goes_on_with_one_id_and_the_right_usage(engines: list[RigEngine], monkeypatch) -> None:
    def body_of(number: int, tokens: int) -> bytes:
        messages = [{"role": "system", "content": "You count."}, {"role": "user", "content": f"to ten, {number}"}]
        limits = {"max_tokens": tokens, "ignore_eos": True}
        return orjson.dumps(
            {
                "model": MODEL_NAME,
                "stream": True,
                "stream_options": {"include_usage": True},
                "messages": messages,
                **limits,
            }
        )

    monkeypatch.setattr("tests.chaos.crowd.body_of", body_of)
    env = {"CONCUR_UPSTREAM__RESUME_STREAMS": "true", "CONCUR_UPSTREAM__RETRY_BUDGET": "1"}
    with ProxyProcess([one.url for one in engines], flags=["--law", "unlimited"], env=env) as proxy:

        async def main():
            crowd = Crowd(proxy.port, 8, TOKENS)
            await crowd.start()
            assert engines[0]._process is not None
            os.kill(children(engines[0]._process.pid)[0], signal.SIGKILL)
            return await crowd.ended()

        streams = asyncio.run(main())
    victims = [stream for stream in streams if stream.backend == engines[0].url.removeprefix("http://")]
    assert victims
    for stream in streams:
        assert (stream.status, stream.done, stream.error) == (200, True, None)
        assert len(stream.ids) == 1
        assert stream.usage is not None
        assert stream.usage["completion_tokens"] == TOKENS
    prompts = {stream.usage["prompt_tokens"] for stream in streams if stream.usage}
    assert max(prompts) - min(prompts) <= 2  # what was said is no prompt, whoever went on

"""The shadow follows a real vLLM's KV events: what they tell is what the engine finds when a session comes back."""

import contextlib
import itertools
import json
import random
from collections.abc import Iterator

import httpx
import pytest
import zmq

from concur_proxy.control.kv_events import KvEvents
from concur_proxy.model import BackendId
from tests.clients.stack import ProxyProcess
from tests.ports import free_port
from tests.rig.engine import RigEngine
from tests.rig.environments import missing

pytestmark = pytest.mark.engine
KV_TOKENS, WORDS = 4096, 600
EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq"}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[RigEngine, str, int]]:
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    port = free_port()
    flags = ("--kv-events-config", json.dumps({**EVENTS, "endpoint": f"tcp://*:{port}"}))
    with RigEngine("vllm", kv_tokens=KV_TOKENS, max_len=2048, speed=20.0, extra_flags=flags) as engine:
        yield engine, engine.url, port


def ask(url: str, engine: RigEngine, session: str, text: str) -> dict[str, int]:
    """One turn of a session; its usage."""
    body = {"model": engine.model, "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"X-Session-ID": session}, timeout=60.0)
    usage = reply.raise_for_status().json()["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {"prompt": usage["prompt_tokens"], "cached": cached}


def text_of(engine: RigEngine, seed: int, words: int = WORDS) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(engine.words) for _ in range(words))


def test_what_is_told_is_what_a_session_finds(served: tuple[RigEngine, str, int]) -> None:
    """Ten sessions on a cache for six: before each comes back, the events say how much of its context is there."""
    engine, url, port = served
    follower = KvEvents(BackendId("vllm"), "", lambda *_: None)
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(f"tcp://127.0.0.1:{port}")
    marks = itertools.count()

    def catch_up() -> None:
        """Take in all events up to now: those of a short turn of somebody else come last."""
        number = next(marks)
        ask(url, engine, f"mark-{number}", text_of(engine, 1000 + number, words=40))
        while follower.blocks.resident(f"mark-{number}") is None:
            assert socket.poll(60_000)
            follower.take(socket.recv_multipart())

    try:
        while not socket.poll(100):  # a subscription takes a moment
            ask(url, engine, "first", text_of(engine, 100 + next(marks)))
        chance, texts = random.Random(1), [text_of(engine, seed) for seed in range(10)]
        for number, text in enumerate(texts):
            ask(url, engine, str(number), text)
        seen = set()
        for _ in range(12):
            catch_up()
            session = str(chance.randrange(10))
            told = follower.blocks.resident(session)
            found = ask(url, engine, session, texts[int(session)])
            assert told is not None
            assert abs(min(told, found["prompt"]) - found["cached"]) <= 2 * 16
            seen.add(found["cached"] > 0.5 * found["prompt"])
        assert seen == {True, False}
    finally:
        socket.close(linger=0)


def test_a_proxy_follows_them(served: tuple[RigEngine, str, int]) -> None:
    engine, url, port = served
    with contextlib.ExitStack() as stack:
        backends = json.dumps([{"url": url, "kv_events_url": f"tcp://127.0.0.1:{port}"}])
        proxy = stack.enter_context(ProxyProcess([], env={"CONCUR_BACKENDS": backends}))
        for number in range(200):
            ask(proxy.url, engine, "agent", text_of(engine, 200 + number))
            if "publishes KV events" in proxy.log():
                break
        assert "publishes KV events" in proxy.log()

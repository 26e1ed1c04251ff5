import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.prefix import prefix_key
from concur_proxy.gateway.popular import FEWEST, HALVED_AFTER, KEPT, KNOWN, PopularPrefixes, replay_of
from concur_proxy.model import PoolId, SessionKey, TurnFacts
from tests.gateway.harness import Engine, Proxy, run

CHAT, MESSAGES = b"/v1/chat/completions", b"/v1/messages"
TOOLS = [{"type": "function", "function": {"name": "grep", "parameters": {"type": "object", "properties": {"x": {}}}}}]


def chat(system, *, user="a secret", model="m", **more):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages, "max_tokens": 900, "stream": True, **more}


def see(popular, fields, session, path=CHAT):
    facts = TurnFacts(PoolId("p"), SessionKey("n", session), prefix_key=prefix_key(fields))
    popular.see(facts, path, orjson.dumps(fields))


def systems(popular):
    return [orjson.loads(one.body)["messages"][0]["content"] for one in popular.replays()]


def test_what_several_sessions_share_is_kept_and_nothing_that_one_has_said():
    popular = PopularPrefixes()
    for session in range(FEWEST - 1):
        see(popular, chat("You are an agent.", tools=TOOLS), f"s{session}")
    assert popular.replays() == []
    see(popular, chat("You are an agent.", tools=TOOLS), "another")
    (replay,) = popular.replays()
    assert (replay.path, replay.model) == ("/v1/chat/completions", "m")
    assert b"secret" not in replay.body
    fields = orjson.loads(replay.body)
    assert fields["tools"] == TOOLS
    assert (fields["max_tokens"], fields["stream"]) == (1, False)
    assert prefix_key(fields) == prefix_key(chat("You are an agent.", tools=TOOLS))


def test_many_turns_of_one_session_make_nothing_popular():
    popular = PopularPrefixes()
    for _ in range(100):
        see(popular, chat("mine alone"), "one")
    assert popular.replays() == []


def test_the_most_popular_are_kept():
    popular = PopularPrefixes()
    for number in range(KEPT + 5):
        for session in range(FEWEST * 2 ** (number % 4)):
            see(popular, chat(f"prefix {number}"), f"{number}-{session}")
    kept = systems(popular)
    assert len(kept) == KEPT
    assert {f"prefix {number}" for number in range(KEPT + 5) if number % 4 == 3} <= set(kept[:4])


def test_what_was_popular_once_makes_room():
    popular = PopularPrefixes()
    for number in range(KEPT):
        for session in range(64):
            see(popular, chat(f"old {number}"), f"{number}-{session}")
    for session in range(2 * HALVED_AFTER):
        see(popular, chat("new"), f"s{session}")
    assert systems(popular)[0] == "new"


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3)), max_size=400))
def test_memory_is_bounded(script):
    popular = PopularPrefixes()
    for prefix, session in script:
        see(popular, chat(f"p{prefix}"), f"s{session}")
    assert len(popular._seen) <= KNOWN
    assert len(popular.replays()) <= KEPT


@pytest.mark.parametrize(
    ("path", "body"),
    [(b"/v1/completions", b'{"model":"m","prompt":"x"}'), (CHAT, b"{"), (CHAT, b"[]"), (CHAT, b'{"messages":[]}')],
)
def test_what_has_no_such_prefix_is_left_out(path, body):
    assert replay_of(path, body) is None


def test_anthropics_shape_keeps_its_own_system_text():
    fields = {"model": "m", "system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "x"}]}
    replay = replay_of(MESSAGES, orjson.dumps(fields))
    told = orjson.loads(replay.body)
    assert (replay.path, told["system"]) == ("/v1/messages", fields["system"])
    assert told["messages"] == [{"role": "user", "content": "."}]


def test_the_data_path_tells_only_where_somebody_wants_to_know():
    async def body():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            assert proxy.handler.popular is None
            proxy.handler.popular = PopularPrefixes()
            for session in range(FEWEST):
                await proxy.ask(orjson.dumps(chat("shared")), headers=b"x-session-id: s%d\r\n" % session)
            assert systems(proxy.handler.popular) == ["shared"]

    run(body())

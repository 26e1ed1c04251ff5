"""What is sent again when an engine fails before any byte of its answer, and what is not."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.paths import Kind
from concur_proxy.gateway.retries import MOST, RESERVE, RetryBudget, may_repeat
from concur_proxy.model import Outcome
from tests.gateway.harness import CHAT, Engine, Proxy, ok, request, run


async def dies(seen, wire):
    """Take a request, and hang up without a word."""
    return False


def dies_first(times):
    """Hang up on so many requests, then answer."""
    left = [times]

    async def script(seen, wire):
        left[0] -= 1
        if left[0] >= 0:
            return False
        await wire.send(ok())
        return None

    return script


@given(st.floats(0, 1), st.lists(st.integers(0, 50), max_size=200))
def test_never_more_than_its_share_of_the_requests_is_sent_again(share, script):
    budget, requests = RetryBudget(share), 0
    for more in script:
        requests += more
        budget.take(requests)
        assert budget.taken <= share * requests + (RESERVE if share else 0)
    assert budget.taken + budget.refused == len(script)


def test_what_is_saved_up_is_bounded():
    budget = RetryBudget(0.5)
    assert sum(budget.take(10_000_000) for _ in range(1000)) == MOST


@pytest.mark.parametrize("generation", [True, False])
@pytest.mark.parametrize("kind", list(Kind))
def test_only_what_does_no_harm_is_repeated_where_generation_is_not(kind, generation):
    generating = kind in {Kind.CHAT, Kind.COMPLETIONS, Kind.RESPONSES, Kind.MESSAGES, Kind.AUDIO, Kind.IMAGES}
    unknown = kind in {Kind.OTHER, Kind.RESPONSE_ITEM}
    assert may_repeat(kind, b"POST", generation=generation) is (not unknown and (generation or not generating))
    assert may_repeat(kind, b"GET", generation=generation)


def test_a_turn_goes_to_the_same_engine_again_where_there_is_no_other():
    async def body():
        async with Engine(dies_first(1)) as engine, Proxy((engine,)) as proxy:
            assert (await proxy.ask()).status == 200
            assert len(engine.seen) == 2
            assert proxy.lost == ["b0"]
            assert proxy.idle()

    run(body())


def test_a_call_that_passes_no_gate_goes_again_too():
    async def body():
        async with Engine(dies_first(1)) as engine, Proxy((engine,)) as proxy:
            assert (await proxy.ask(b'{"input":"x"}', path=b"/v1/embeddings")).status == 200
            assert len(engine.seen) == 2
            assert proxy.idle()

    run(body())


def test_nothing_goes_a_third_time():
    async def body():
        async with Engine(dies) as one, Engine(dies) as two, Engine(dies) as three, Proxy((one, two, three)) as proxy:
            assert (await proxy.ask()).status == 502
            assert sum(len(engine.seen) for engine in (one, two, three)) == 2
            assert proxy.idle()

    run(body())


@pytest.mark.parametrize("engines", [1, 2])
def test_where_generation_is_not_repeated_a_turn_that_may_have_run_fails(engines):
    async def body():
        settings = HandlerSettings(retry_generation=False)
        async with Engine(dies) as one, Engine(dies) as two, Proxy((one, two)[:engines], settings=settings) as proxy:
            answer = await proxy.ask()
            assert (answer.status, answer.value(b"x-should-retry")) == (502, b"true")
            assert len(one.seen) + len(two.seen) == 1
            assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]

    run(body())


def test_where_generation_is_not_repeated_one_that_was_never_sent_is():
    async def body():
        settings = HandlerSettings(retry_generation=False)
        async with Engine() as gone, Engine() as there:
            await gone.__aexit__()
            async with Proxy((gone, there), settings=settings) as proxy:
                assert (await proxy.ask()).status == 200
                assert len(there.seen) == 1
            await gone.__aenter__()

    run(body())


def test_where_generation_is_not_repeated_a_kept_connection_that_dies_is_no_excuse():
    async def body():
        async def once(seen, wire):
            if len(engine.seen) > 1:
                return False
            await wire.send(ok())
            return None

        settings = HandlerSettings(retry_generation=False)
        async with Engine(once) as engine, Proxy((engine,), settings=settings) as proxy:
            client = await proxy.client()
            await client.send(request(CHAT))
            assert (await client.answer()).status == 200
            await client.send(request(CHAT))
            assert (await client.answer()).status == 502
            assert len(engine.seen) == 2
            await client.close()

    run(body())


def test_a_fleet_that_fails_is_not_asked_twice_as_much():
    async def body():
        async with Engine(dies) as engine, Proxy((engine,), settings=HandlerSettings(retry_budget=0.125)) as proxy:
            for _ in range(40):
                answer = await proxy.ask(b'{"input":"x"}', path=b"/v1/embeddings")
                assert answer.status == 502
                assert orjson.loads(answer.body)["error"]["code"] == "backend_error"
            assert len(engine.seen) == 40 + RESERVE + 5

    run(body())

"""What clients hear of limits and of batch work that is held back, over real sockets."""

import asyncio

import orjson
import pytest

from concur_proxy.core.gate import GatePolicy
from concur_proxy.core.policy import TenantLimits
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.model import ColdLane
from tests.gateway.harness import POOL, Engine, Proxy, ok, run, until

BATCH = b'{"model":"m","priority":1,"messages":[{"role":"user","content":"later"}]}'
USED = b'{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":90,"completion_tokens":30}}'
BY_HEADER = HandlerSettings(tenant_header="x-team")


def limited(**limits):
    return GatePolicy(limits={"default": TenantLimits(**limits)}, retry_after_s=3.0)


def told(answer):
    """Return status, code and Retry-After of a refusal in OpenAI's shape."""
    error = orjson.loads(answer.body)["error"]
    assert answer.value(b"x-should-retry") == b"true"
    assert int(answer.value(b"retry-after-ms")) <= 1000 * int(answer.value(b"retry-after"))
    return answer.status, error["code"], error["type"], int(answer.value(b"retry-after"))


@pytest.mark.parametrize("header", [b"authorization: Bearer %b\r\n", b"x-api-key: %b\r\n"])
def test_a_key_that_sends_more_turns_than_it_may_hears_429_and_when_to_come_back(header):
    async def main():
        async with Engine() as engine, Proxy((engine,), policy=limited(turns_per_minute=1)) as proxy:
            mine, other = header % b"mine", header % b"other"
            assert (await proxy.ask(headers=mine)).status == 200
            status, code, kind, retry = told(await proxy.ask(headers=mine))
            assert (status, code, kind) == (429, "turn_rate_limit", "rate_limit_error")
            assert 1 <= retry <= 60
            assert (await proxy.ask(headers=other)).status == 200
            assert len(engine.seen) == 2
            assert proxy.turns[1].outcome == "turn_rate_limit"
            assert proxy.idle()

    run(main())


def test_anthropic_clients_hear_of_it_in_their_shape():
    async def main():
        async with Engine() as engine, Proxy((engine,), policy=limited(turns_per_minute=1)) as proxy:
            assert (await proxy.ask(path=b"/v1/messages")).status == 200
            answer = await proxy.ask(path=b"/v1/messages")
            assert answer.status == 429
            assert orjson.loads(answer.body)["error"]["type"] == "rate_limit_error"
            assert answer.value(b"retry-after")

    run(main())


def test_tokens_count_when_the_engine_has_told_them():
    async def answer(_seen, wire):
        await wire.send(ok(USED))

    async def main():
        async with Engine(answer) as engine, Proxy((engine,), policy=limited(tokens_per_minute=100)) as proxy:
            assert (await proxy.ask()).status == 200
            await until(proxy.idle)
            status, code, _, retry = told(await proxy.ask())
            assert (status, code) == (429, "token_rate_limit")
            assert 1 <= retry <= 13  # 21 tokens are missing

    run(main())


def test_a_team_by_its_header_has_limits_of_its_own():
    async def main():
        policy = GatePolicy(limits={"small": TenantLimits(turns_per_minute=1)})
        async with Engine() as engine, Proxy((engine,), policy=policy, settings=BY_HEADER) as proxy:
            statuses = [(await proxy.ask(headers=b"X-Team: small\r\n")).status for _ in range(2)]
            statuses += [(await proxy.ask(headers=b"X-Team: large\r\n")).status for _ in range(2)]
            assert statuses == [200, 429, 200, 200]

    run(main())


def test_sessions_and_turns_that_wait_are_limited_and_calls_without_kv_are_not():
    async def main():
        release = asyncio.Event()

        async def answer(seen, wire):
            if b"embeddings" not in seen.line:
                await release.wait()
            await wire.send(ok())

        policy = limited(active_sessions=2, held_turns=1)
        async with Engine(answer) as engine, Proxy((engine,), policy=policy, window=1.0) as proxy:
            first = asyncio.create_task(proxy.ask(headers=b"X-Session-ID: one\r\n"))
            await until(lambda: len(engine.seen) == 1)
            second = asyncio.create_task(proxy.ask(headers=b"X-Session-ID: two\r\n"))
            await until(lambda: proxy.dispatcher.snapshot().held == 1)
            third = await proxy.ask(headers=b"X-Session-ID: three\r\n")
            assert told(third)[:2] == (429, "too_many_sessions")
            assert told(third)[3] == 3
            assert told(await proxy.ask(headers=b"X-Session-ID: two\r\n"))[:2] == (429, "too_many_held")
            assert (await proxy.ask(path=b"/v1/embeddings")).status == 200
            release.set()
            assert (await first).status == 200
            proxy.dispatcher.end_session(proxy.turns[-1].session)
            assert (await second).status == 200
            await until(proxy.idle)

    run(main())


def test_batch_work_is_refused_while_interactive_answers_miss_their_objective_and_goes_on_afterwards():
    """Any answer takes longer than this objective; when nobody asks for any, there is nothing to miss it."""

    async def main():
        policy = GatePolicy(order="lanes", hot_objective_s=1e-9, hot_window_s=0.05, cold_refuse_after_s=0.0)
        changes = []
        async with Engine() as engine, Proxy((engine,), policy=policy) as proxy:
            proxy.gate.on_cold_lane(lambda _pool, becomes, _p99_s: changes.append(becomes))

            def lane():
                return proxy.dispatcher.snapshot().hot_lanes[POOL].cold_lane

            assert (await proxy.ask(BATCH)).status == 200
            while lane() is not ColdLane.REFUSED:
                assert (await proxy.ask()).status == 200
            answer = await proxy.ask(BATCH)
            assert told(answer) == (503, "batch_paused", "overloaded_error", 1)
            await until(lambda: lane() is ColdLane.OPEN)
            assert (await proxy.ask(BATCH)).status == 200
            assert changes == [ColdLane.HELD, ColdLane.REFUSED, ColdLane.OPEN]

    run(main())


def test_batch_work_that_waits_is_held_back_and_goes_on_by_itself_when_answers_are_quick_again():
    async def main():
        policy = GatePolicy(order="lanes", hot_objective_s=1e-9, hot_window_s=0.05, cold_refuse_after_s=60.0)
        async with Engine() as engine, Proxy((engine,), policy=policy) as proxy:
            proxy.dispatcher.tick()
            while proxy.dispatcher.snapshot().hot_lanes[POOL].cold_lane is ColdLane.OPEN:
                assert (await proxy.ask()).status == 200
            batch = asyncio.create_task(proxy.ask(BATCH))
            await until(lambda: proxy.dispatcher.snapshot().held == 1)
            assert (await batch).status == 200  # nobody asks for anything else: the way is free
            assert proxy.turns[-1].queued_s > 0.0

    run(main())


# priorities for engines that schedule by them


@pytest.mark.parametrize(
    ("sign", "headers", "body", "told"),
    [
        (-1, b"x-smg-priority: 5\r\n", b'{"model":"m","messages":[]}', b'{"priority":-5,"model":"m","messages":[]}'),
        (1, b"x-smg-priority: 5\r\n", b'{"model":"m","messages":[]}', b'{"priority":5,"model":"m","messages":[]}'),
        (1, b"x-concur-cold: 1\r\n", b'{"model":"m"}', b'{"priority":-1,"model":"m"}'),
        (-1, b"x-concur-cold: 1\r\n", b'{"model":"m"}', b'{"priority":1,"model":"m"}'),
        (-1, b"", b'{"model":"m"}', b'{"model":"m"}'),
        (1, b"", b'{"model":"m"}', b'{"priority":0,"model":"m"}'),
        (-1, b"", b'{"model":"m", "priority": 3}', b'{"model":"m", "priority": 3}'),
        (1, b"", b'{"model":"m", "priority": 3}', b'{"model":"m","priority":-3}'),
        (0, b"x-smg-priority: 5\r\n", b'{"model":"m"}', b'{"model":"m"}'),
        (1, b"x-smg-priority: 5\r\n", b"no JSON", b"no JSON"),
    ],
)
def test_engines_that_schedule_by_priority_are_told_it_in_their_own_sign(sign, headers, body, told):
    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            for pool in proxy.pools.values():
                pool.priority_sign = sign
            assert (await proxy.ask(body, headers=headers)).status == 200
            assert engine.seen[0].body == told

    run(main())

"""What becomes of a key on the data path: it stays here, and opens its own sessions, responses and models only."""

import asyncio
import gzip
import json

import pytest

from concur_proxy.auth.access import Access
from concur_proxy.auth.keys import Keyrings, new_key, parse, with_key
from concur_proxy.config import UpstreamSettings
from concur_proxy.gateway import credentials
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendEvent, BackendId
from concur_proxy.windows.base import Unit
from tests.gateway.harness import CHAT, POOL, Engine, Proxy, chunked, ok, request, run, until

A, B, SOME = new_key(), new_key(), new_key()
TEXT = with_key(with_key("", "f", A, "team-a"), "f", B, "team-b")
TEXT = with_key(TEXT, "f", SOME, "team-s", models=["m", "llama*"])


def bearer(key):
    return b"authorization: Bearer %b\r\n" % key.encode()


class Guarded(Proxy):
    """A proxy that checks keys; each engine has its own."""

    async def __aenter__(self):
        await super().__aenter__()
        self.handler.access = Access(Keyrings([parse(TEXT, "f")]))
        return self

    def add(self, backend, url):
        line = credentials.line(f"own-{backend}")
        self.pools[backend] = UpstreamPool(url, UpstreamSettings(), credential=line)
        self.dispatcher.add_backend(backend, POOL, unit=Unit.SESSIONS, window=self.window)
        self.dispatcher.set_members(POOL, self.pools)
        self.dispatcher.backend_event(backend, BackendEvent.UP)


def test_each_engine_gets_its_own_key_and_never_the_clients():
    together = asyncio.Event()

    async def when_both_are_busy(_seen, wire):
        await together.wait()
        await wire.send(ok())

    async def main():
        async with (
            Engine(when_both_are_busy) as first,
            Engine(when_both_are_busy) as second,
            Guarded((first, second)) as proxy,
        ):
            also = b"X-API-Key: %b\r\nApi-Key: %b\r\n" % (A.encode(), A.encode())
            more = [b"%bx-session-id: s%d\r\n" % (also, number) for number in range(8)]
            asked = [asyncio.ensure_future(proxy.ask(headers=bearer(A) + headers)) for headers in more]
            await until(lambda: first.seen and second.seen)
            together.set()
            assert [(await answer).status for answer in asked] == [200] * 8
            for engine, name in ((first, b"b0"), (second, b"b1")):
                for seen in engine.seen:
                    assert seen.values(b"authorization") == [b"Bearer own-" + name]
                    assert not seen.values(b"x-api-key")
                    assert A.encode() not in b"".join(value for _, value in seen.headers)

    run(main())


def test_a_second_try_on_another_engine_carries_that_engines_key():
    async def die(_seen, _wire):
        return False

    async def main():
        async with Engine(die) as first, Engine() as second, Guarded((first, second)) as proxy:
            answers = [await proxy.ask(headers=bearer(A)) for _ in range(4)]
            assert {answer.status for answer in answers} == {200}
            assert first.seen
            assert {value for seen in first.seen for value in seen.values(b"authorization")} == {b"Bearer own-b0"}
            assert {value for seen in second.seen for value in seen.values(b"authorization")} == {b"Bearer own-b1"}

    run(main())


def test_where_engines_check_keys_requests_keep_what_they_bring():
    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            await proxy.ask(headers=bearer(A) + b"x-api-key: k\r\n")
            assert engine.seen[0].values(b"authorization") == [b"Bearer " + A.encode()]
            assert engine.seen[0].values(b"x-api-key") == [b"k"]

    run(main())


def test_a_request_without_a_key_never_reaches_an_engine_nor_the_gate():
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            for headers in (b"", bearer("ck_wrong"), b"authorization: Basic YTpi\r\n"):
                answer = await proxy.ask(headers=headers)
                assert answer.status == 401
                assert answer.value(b"www-authenticate")
            assert not engine.seen
            assert not proxy.records
            assert proxy.idle()

    run(main())


def test_the_connection_goes_on_after_a_refusal_and_pipelined_requests_are_judged_one_by_one():
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request(), request(headers=bearer(A)), request(headers=bearer(B + "x")))
            assert [(await client.answer()).status for _ in range(3)] == [401, 200, 401]
            await client.close()

    run(main())


def test_requests_with_the_same_head_are_judged_one_by_one_too():
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            client, taken = await proxy.client(), proxy.handler.access
            for access in (taken, taken, taken, taken, Access(Keyrings([])), taken):
                proxy.handler.access = access
                await client.send(request(headers=bearer(A)))
                assert (await client.answer()).status == (200 if access is taken else 401)
            await client.close()
            assert len(engine.seen) == 5
            assert all(seen.values(b"authorization") == [b"Bearer own-b0"] for seen in engine.seen)

    run(main())


def test_one_session_id_under_two_keys_is_two_sessions_of_two_tenants():
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            for key in (A, B, A):
                assert (await proxy.ask(headers=bearer(key) + b"x-session-id: same\r\n")).status == 200
            await until(proxy.idle)
            found = {view.key: view.turns for view in proxy.gate.sessions(now=0, limit=10)}
            assert {(key.namespace, key.id): turns for key, turns in found.items()} == {
                ("key:team-a", "same"): 2,
                ("key:team-b", "same"): 1,
            }
            assert proxy.handler.namespace_of({"authorization": f"Bearer {A}"}) == "key:team-a"

    run(main())


async def responses(seen, wire):
    body = b'{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":1}}'
    await wire.send(ok(body))


def test_a_stored_response_is_its_callers_alone():
    async def main():
        async with Engine(responses) as engine, Guarded((engine,)) as proxy:
            made = await proxy.ask(b'{"model":"m","input":"hi"}', path=b"/v1/responses", headers=bearer(A))
            assert made.status == 200
            follow = b'{"model":"m","input":"go on","previous_response_id":"resp_1"}'
            asked = [
                {"body": b"", "path": b"/v1/responses/resp_1", "method": b"GET", "length": False},
                {"body": b"", "path": b"/v1/responses/resp_1", "method": b"DELETE", "length": False},
                {"body": b"{}", "path": b"/v1/responses/resp_1/cancel"},
                {"body": follow, "path": b"/v1/responses"},
            ]
            assert [(await proxy.ask(**one, headers=bearer(B))).status for one in asked] == [404] * 4
            assert len(engine.seen) == 1
            assert [(await proxy.ask(**one, headers=bearer(A))).status for one in asked] == [200] * 4

    run(main())


FORM = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n'
FORMS = b"content-type: multipart/form-data; boundary=x\r\n"


@pytest.mark.parametrize(
    ("body", "more", "path", "allowed"),
    [
        (CHAT, b"", b"/v1/chat/completions", True),
        (b'{"model":"llama-3","messages":[]}', b"", b"/v1/chat/completions", True),
        (b'{"model":"other","messages":[]}', b"", b"/v1/chat/completions", False),
        (b'{"model":"other","messages":[]}', b"", b"/v1/messages", False),
        (b'{"model":"other","input":""}', b"", b"/v1/responses", False),
        (b'{"model":"m","model":"other","messages":[]}', b"", b"/v1/chat/completions", False),
        (b'{"model":["m"]}', b"", b"/v1/chat/completions", False),
        (b'{"messages":[]}', b"", b"/v1/chat/completions", False),
        (b"", b"", b"/v1/chat/completions", False),
        (b"model=m", b"", b"/v1/chat/completions", False),
        (gzip.compress(CHAT), b"content-encoding: gzip\r\n", b"/v1/chat/completions", False),
        (b'{"prompt":"x"}', b"", b"/tokenize", False),
        (FORM % b"m" + b"--x--\r\n", FORMS, b"/v1/audio/transcriptions", True),
        (FORM % b"other" + b"--x--\r\n", FORMS, b"/v1/audio/transcriptions", False),
        (FORM % b"m" + FORM % b"other" + b"--x--\r\n", FORMS, b"/v1/audio/transcriptions", False),
    ],
)
def test_a_key_for_some_models_is_for_these(body, more, path, allowed):
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            answer = await proxy.ask(body, path=path, headers=bearer(SOME) + more)
            assert (answer.status, len(engine.seen)) == ((200, 1) if allowed else (403, 0))
            assert (await proxy.ask(body, path=path, headers=bearer(A) + more)).status == 200
            if not allowed and path == b"/v1/messages":
                assert json.loads(answer.body)["error"]["type"] == "permission_error"
            elif not allowed:
                told = json.loads(answer.body)["error"]
                assert (told["code"], told["param"]) == ("model_not_allowed", "model")

    run(main())


def test_a_stream_of_a_known_caller_is_relayed_as_ever():
    async def stream(_seen, wire):
        await wire.send(chunked(b"data: 1\n\n", b"data: [DONE]\n\n"))

    async def main():
        async with Engine(stream) as engine, Guarded((engine,)) as proxy:
            client = await proxy.client()
            for _ in range(3):
                await client.send(request(headers=bearer(A)))
                assert (await client.answer()).body == b"data: 1\n\ndata: [DONE]\n\n"
            await client.close()
            assert len(engine.seen) == 3

    run(main())


def test_a_key_that_is_taken_back_while_a_turn_runs_ends_with_it():
    gate = asyncio.Event()

    async def slow(_seen, wire):
        await gate.wait()
        await wire.send(ok())

    async def main():
        async with Engine(slow) as engine, Guarded((engine,)) as proxy:
            running = asyncio.ensure_future(proxy.ask(headers=bearer(A)))
            await until(lambda: engine.seen)
            proxy.handler.access.replace_keys(Keyrings())
            assert (await proxy.ask(headers=bearer(A))).status == 401
            gate.set()
            assert (await running).status == 200

    run(main())


def test_the_key_of_a_backend_is_in_the_proxys_own_questions_too():
    async def main():
        async with Engine() as engine, Guarded((engine,)) as proxy:
            await proxy.pools[BackendId("b0")].fetch("/v1/models", [])
            assert engine.seen[0].values(b"authorization") == [b"Bearer own-b0"]

    run(main())

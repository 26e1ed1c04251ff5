"""The paths that the proxy answers by itself."""

import json

import pytest

from concur_proxy.gateway.models import merge
from tests.gateway.harness import Engine, Proxy, ok, request, run


def model(name, **fields):
    return {"id": name, "object": "model", **fields}


def listing(*models, **fields):
    return json.dumps({"object": "list", "data": list(models), **fields}).encode()


def lists(body, status=b"200 OK"):
    async def script(_seen, wire):
        await wire.send(ok(body, status=status))

    return script


async def get(proxy, path, **kwargs):
    answer = await proxy.ask(b"", path=path, method=b"GET", **kwargs)
    return answer.status, json.loads(answer.body)


def test_health():
    async def main():
        async with Proxy() as proxy:
            assert await get(proxy, b"/livez") == (200, {"status": "alive"})
            assert await get(proxy, b"/readyz") == (200, {"status": "ready", "backends": 0})
            assert await get(proxy, b"/health") == (200, {"status": "ready", "backends": 0})

    run(main())


def test_models_of_all_backends_with_all_their_fields():
    async def main():
        one = lists(listing(model("a", max_model_len=8192, permission=[{"x": 1}]), model("b"), extra="kept"))
        two = lists(listing(model("b", owned_by="other"), model("c/d", root="r")))
        async with Engine(one) as first, Engine(two) as second, Proxy((first, second)) as proxy:
            status, body = await get(proxy, b"/v1/models", headers=b"Authorization: Bearer k\r\nX-Other: 1\r\n")
            assert status == 200
            assert body["extra"] == "kept"
            assert body["data"] == [
                model("a", max_model_len=8192, permission=[{"x": 1}]),
                model("b"),
                model("c/d", root="r"),
            ]
            assert first.seen[0].values(b"authorization") == [b"Bearer k"]
            assert first.seen[0].values(b"x-other") == []
            assert (await get(proxy, b"/v1/models/c/d"))[1]["root"] == "r"
            status, body = await get(proxy, b"/v1/models/z")
            assert (status, body["error"]["code"]) == (404, "model_not_found")

    run(main())


def test_a_backend_that_does_not_answer_does_not_hide_the_others():
    async def dies(_seen, _wire):
        return False

    async def main():
        good = lists(listing(model("a")))
        async with Engine(dies) as first, Engine(good) as second, Proxy((first, second)) as proxy:
            assert (await get(proxy, b"/v1/models"))[1]["data"] == [model("a")]

    run(main())


def test_the_engines_own_refusal_is_told():
    async def main():
        async with Engine(lists(b'{"error":"Unauthorized"}', b"401 Unauthorized")) as engine, Proxy((engine,)) as proxy:
            assert await get(proxy, b"/v1/models") == (401, {"error": "Unauthorized"})
            assert (await get(proxy, b"/v1/models/a"))[0] == 401

    run(main())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"7"])
def test_nonsense_from_a_backend_is_no_list(body):
    async def main():
        async with Engine(lists(body)) as engine, Proxy((engine,)) as proxy:
            status, told = await get(proxy, b"/v1/models")
            assert status in (200, 503)
            assert status == 503 or told["data"] == []

    run(main())


def test_without_backends():
    async def main():
        async with Proxy() as proxy:
            client = await proxy.client()
            await client.send(request(b"", path=b"/v1/models", method=b"GET"))
            answer = await client.answer()
            assert (answer.status, answer.value(b"retry-after")) == (503, b"2")
            assert json.loads(answer.body)["error"]["code"] == "no_backend"
            await client.close()

    run(main())


def test_wrong_methods_have_the_api_shape():
    async def main():
        async with Proxy() as proxy:
            answer = await proxy.ask(b"{}", path=b"/v1/models")
            assert answer.status == 405
            assert json.loads(answer.body)["error"]["code"] == "method_not_allowed"

    run(main())


def test_merging_keeps_the_first_of_each_id():
    merged = merge([{"data": [{"id": "a", "n": 1}, "odd"]}, {"data": [{"id": "a", "n": 2}]}, {"object": "list"}])
    assert merged == {"object": "list", "data": [{"id": "a", "n": 1}]}

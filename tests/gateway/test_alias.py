import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway.alias import with_aliases, with_model
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.models import ModelList
from tests.gateway.harness import POOL, Engine, Proxy, run

ALIASES = {"gpt": "Qwen/Q-32B"}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", '"model": "gpt"']), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=4), st.text(min_size=1), st.text(min_size=1))
def test_only_the_model_changes(rest, before, after):
    fields = {**rest, "model": before}
    assert orjson.loads(with_model(orjson.dumps(fields), fields, after)) == {**fields, "model": after}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{ "n":1.0e0,\n "model" : "gpt", "x":[]}', b'{ "n":1.0e0,\n "model" : "Q", "x":[]}'),
        (
            b'{"model":"g\\u0070t","content":"\\"model\\":\\"gpt\\""}',
            b'{"model":"Q","content":"\\"model\\":\\"gpt\\""}',
        ),
    ],
)
def test_every_other_byte_stays(body, wanted):
    assert with_model(body, orjson.loads(body), "Q") == wanted


def test_a_form_asks_for_the_model_too():
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt\r\n--x--\r\n'
    assert with_model(form, None, "whisper") == form.replace(b"gpt", b"whisper")
    assert with_model(b"anything", None, "whisper") == b"anything"


def test_aliases_are_listed_with_what_they_stand_for():
    found = ModelList(200, {"object": "list", "data": [{"id": "m", "max_model_len": 9}]})
    listed = with_aliases(found, {"gpt": "m", "other": "not here", "m": "m"}).body["data"]
    assert listed == [{"id": "m", "max_model_len": 9}, {"id": "gpt", "max_model_len": 9, "root": "m"}]
    assert with_aliases(ModelList(None, {}), {"gpt": "m"}) == ModelList(None, {})


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_for_an_alias_goes_to_who_serves_the_model_under_its_name(stream):
    async def body():
        settings = HandlerSettings(aliases=ALIASES)
        resolve = lambda model: POOL if model == "Qwen/Q-32B" else None  # noqa: E731
        async with Engine() as engine, Proxy((engine,), settings=settings, resolve=resolve) as proxy:
            asked = {"model": "gpt", "stream": stream, "stream_options": {"x": 1}, "messages": []}
            assert (await proxy.ask(orjson.dumps(asked))).status == 200
            told = orjson.loads(engine.seen[0].body)
            assert told["model"] == "Qwen/Q-32B"
            assert told["stream_options"]["x"] == 1
            unknown = await proxy.ask(orjson.dumps({**asked, "model": "other"}))
            assert unknown.status == 404
            assert orjson.loads(unknown.body)["error"]["code"] == "model_not_found"

    run(body())


def test_nothing_is_touched_without_aliases():
    async def body():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            sent = b'{ "model" : "gpt","messages":[]}'
            await proxy.ask(sent)
            assert engine.seen[0].body == sent

    asyncio.run(body())

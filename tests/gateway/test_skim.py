"""A long body read in part tells what it tells when it is read in full; the two readers agree on any body."""

import dataclasses
import json
import math

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from concur_proxy.gateway.body import LONG, NOTHING, facts, with_usage_requested
from concur_proxy.gateway.conversations import Conversations
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.skim import skim
from concur_proxy.model import SessionKey
from tests.gateway.harness import POOL, Engine, Proxy, run

SESSION = SessionKey("ns", "s")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2000}}
SOURCE = {"type": "image", "source": {"type": "base64", "data": "B" * 1500}}
RESULT = {"type": "tool_result", "content": [SOURCE, {"type": "text", "text": "seen"}]}
ODD = st.sampled_from([None, True, 0, -1, 7, 1 << 80, 1.5, "", "x", [], {}, [1], [[]], {"a": None}])
TEXTS = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", '}],"model":"other"', "\u2028", "\U0001f600", "data:," + "C" * 9]
)
CONTENTS = TEXTS | ODD | st.lists(st.sampled_from([IMAGE, SOURCE, RESULT, {"type": "text", "text": "t"}]), max_size=3)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"]) | ODD
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": ROLES,
        "content": CONTENTS,
        "name": TEXTS,
        "tool_calls": ODD,
        "image_url": st.just("data:image/png," + "D" * 40) | ODD,
        "source": st.just({"data": "E" * 1100}) | ODD,
        "file_data": st.just("F" * 1100) | ODD,
    },
)
TALKS = st.lists(MESSAGES, max_size=5) | st.lists(MESSAGES | ODD, max_size=4) | ODD | TEXTS
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "messages": TALKS,
        "input": TALKS,
        "model": TEXTS | ODD,
        "stream": st.booleans() | ODD,
        "stream_options": st.sampled_from([{"include_usage": True}, {"include_usage": False}, {}]) | ODD,
        "max_tokens": st.integers(0, 1 << 33) | ODD,
        "max_completion_tokens": ODD,
        "n": ODD,
        "system": CONTENTS,
        "instructions": TEXTS | ODD,
        "prompt": TEXTS | st.lists(st.integers() | TEXTS, max_size=4) | ODD,
        "tools": st.lists(st.fixed_dictionaries({"type": ODD, "function": st.dictionaries(TEXTS, TEXTS)}), max_size=2)
        | ODD,
        "cache_salt": TEXTS | ODD,
        "lora_path": TEXTS,
        "previous_response_id": TEXTS | ODD,
        "background": st.booleans() | ODD,
        "priority": st.integers(-9, 9) | ODD,
        "deadline_seconds": st.floats(allow_nan=False, allow_infinity=False) | ODD,
        "nvext": st.just({"agent_hints": {"priority": 3, "deadline_seconds": 2}}) | ODD,
        "metadata": st.dictionaries(TEXTS, ODD, max_size=2),
    },
)


@st.composite
def written(draw):
    """A body as one of many clients may write it: spaces, escapes, and names that come twice."""
    pairs = list(draw(BODIES).items()) + list(draw(BODIES).items())[: draw(st.integers(0, 2))]
    pairs = draw(st.permutations(pairs))
    ascii_only, space = draw(st.booleans()), draw(st.sampled_from(["", " ", "\n\t"]))
    items = [
        f"{space}{json.dumps(name)}{space}:{space}{json.dumps(value, ensure_ascii=ascii_only)}" for name, value in pairs
    ]
    return (space + "{" + f"{space},".join(items) + space + "}" + space).encode("utf-8", "surrogatepass")


def told(found):
    """What facts say, but how they were found."""
    names = [field.name for field in dataclasses.fields(found) if field.name not in {"fields", "in_part"}]
    return {name: getattr(found, name) for name in names}


def in_part(body):
    """Read a body as a long one is, however short."""
    return facts(body, conversations=Conversations(), session=SESSION, long=0)


def goes_unnoticed(body):
    """Whether a body has what only a full reading notices: bytes that are no UTF-8, numbers that no float can hold."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return True
    large = []

    def note(digits):
        large.append(math.isinf(float(digits)))

    try:
        json.loads(text, parse_int=note, parse_float=note)
    except (ValueError, RecursionError):
        return False
    return any(large)


def check_that_the_readers_agree(body):
    whole, part = facts(body), in_part(body)
    assert told(part) == told(whole) or (whole is NOTHING and goes_unnoticed(body))


def chat(*contents, **fields):
    messages = [{"role": "system", "content": "s"}, *({"role": "user", "content": each} for each in contents)]
    return json.dumps({"messages": messages, **fields}).encode()


@given(written())
@example(chat("a", [IMAGE], "b", [RESULT, SOURCE]))
@example(chat("a", tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {}}}}}]))
@example(chat("a").replace(b'"system"', b'"sys\\u0074em"'))
@example(
    chat("a", model="n", max_tokens=5, n=2, priority=1)[:-1] + b',"model":"m","messages":null,"input":[{"content":[]}]}'
)
def test_read_in_part_a_body_tells_the_same(body):
    whole = facts(body)
    assert told(in_part(body)) == told(whole)
    assert whole.fields == (orjson.loads(body) or {})


@given(written())
@example(b'{"model":"m","stream":true}')
def test_the_usage_event_is_asked_for_in_the_same_way(body):
    """Where it is asked for: of streams whose client has not asked itself."""
    whole, part = facts(body), in_part(body)
    if whole.stream and not whole.include_usage:
        assert with_usage_requested(body, part.fields) == with_usage_requested(body, whole.fields)


@given(written(), st.data())
def test_what_is_broken_is_no_json_to_either(body, data):
    """One byte is put in, taken out or changed: both refuse it, or both tell the same of it."""
    at = data.draw(st.integers(0, len(body) - 1))
    put = data.draw(
        st.sampled_from([b"", b'"', b"\\", b"{", b"]", b",", b"\x00", b"\n", b"0", b"-", b".", b"e", b"u", b"\x1f"])
    )
    check_that_the_readers_agree(body[:at] + put + body[at + data.draw(st.integers(0, 1)) :])


IN_A_TEXT = b'{"model":"m","messages":[{"role":"user","content":%b}]}'


@pytest.mark.parametrize(
    "content",
    [b'"\x01"', b'"\\x"', b'"\\ud800"', b'"\\u12"', b"-", b"01", b"1.", b"NaN", b"nul", b"[1,]", b'{"a" 1}', b"+1"],
)
def test_grammar_is_checked_within_what_is_passed_over(content):
    assert facts(IN_A_TEXT % content) is NOTHING
    assert in_part(IN_A_TEXT % content) is NOTHING


@pytest.mark.parametrize("content", [b'"\xff"', b'"\xed\xa0\x80"', b'[{"text":"\xc3"}, 1e999]'])
def test_of_what_no_engine_takes_more_may_be_found_out(content):
    """Bytes and numbers that only whoever builds a text or a float notices: nothing but this is told differently."""
    assert facts(IN_A_TEXT % content) is NOTHING
    found = in_part(IN_A_TEXT % content)
    assert found is NOTHING or (found.model, found.media_bytes) == ("m", 0)


@pytest.mark.parametrize("depth", [10, 500, 5000, 100_000])
@pytest.mark.parametrize(
    "where", [b'{"model":"m","x":%b}', IN_A_TEXT, b'{"model":"m","tools":[{"function":%b}]}', b"%b"]
)
def test_depth_breaks_neither_reader(depth, where):
    body = where % (b"[" * depth + b"]" * depth)
    whole, part = facts(body), in_part(body)
    assert part is NOTHING or told(part) == told(whole) or (whole is NOTHING and part.model == "m")


@given(st.binary(max_size=60))
def test_any_bytes_break_neither_reader(body):
    check_that_the_readers_agree(body)


def test_a_body_of_usual_length_and_one_that_is_wanted_whole_are_read_in_full():
    body = b'{"model":"m"}'
    assert facts(body, conversations=Conversations(), session=SESSION).fields == facts(body).fields == {"model": "m"}
    assert in_part(body).fields is None


def test_texts_are_passed_over():
    chat = {"messages": [{"role": "system", "content": "s"}, *[{"role": "user", "content": "t" * 99}] * 3]}
    assert skim(json.dumps(chat).encode()) == {
        "messages": [{"role": "system", "content": "s"}, {"content": ""}],
    }


def test_a_conversation_of_another_shape_is_read_in_full():
    assert skim(b'{"messages":[1]}') is None
    assert skim(b'{"input":"what is asked"}') is None


@pytest.mark.parametrize("options", [{}, {"stream_options": {"x": 1}}])
@pytest.mark.parametrize("headers", [b"X-Session-ID: one\r\n", b""])
def test_a_long_turn_is_served_as_a_short_one_is(options, headers):
    """Its model goes by another name, and its engine is asked for the usage event, whether or not all of it is read."""
    chat = {"messages": [{"role": "user", "content": "t" * LONG}], "model": "alias", "stream": True, **options}

    async def body():
        settings = HandlerSettings(aliases={"alias": "m"})
        resolve = lambda model: POOL if model == "m" else None  # noqa: E731
        async with Engine() as engine, Proxy((engine,), settings=settings, resolve=resolve) as proxy:
            assert (await proxy.ask(json.dumps(chat).encode(), headers=headers)).status == 200
            asked = {**options.get("stream_options", {}), "include_usage": True}
            assert orjson.loads(engine.seen[0].body) == {**chat, "model": "m", "stream_options": asked}

    run(body())

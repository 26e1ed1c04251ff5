"""What a body tells, and the one insertion."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway.body import NOTHING, facts, multipart_facts, with_usage_requested


def told(**fields):
    return facts(json.dumps(fields).encode())


def test_the_fields_that_matter():
    body = told(model="m", stream=True, stream_options={"include_usage": True}, max_tokens=5, n=3)
    assert (body.model, body.stream, body.include_usage) == ("m", True, True)
    assert (body.max_output_tokens, body.choices) == (5, 3)
    assert told(previous_response_id="resp_1").previous_response_id == "resp_1"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_each_name_of_the_output_limit(name):
    assert told(**{name: 7}).max_output_tokens == 7


def test_the_newer_name_of_the_output_limit_wins():
    assert told(max_tokens=7, max_completion_tokens=9).max_output_tokens == 9


@pytest.mark.parametrize(
    "fields",
    [
        {"model": 1, "stream": "yes", "stream_options": [], "max_tokens": -1, "n": True, "messages": 7},
        {"model": None, "stream": 1, "stream_options": {"include_usage": 1}, "max_tokens": 1e9, "n": 0, "input": {}},
        {"max_tokens": 1 << 40, "n": "2", "messages": [None, 1, "x", []], "tools": "none"},
    ],
)
def test_odd_values_tell_nothing(fields):
    body = told(**fields)
    assert (body.model, body.stream, body.include_usage) == (None, False, False)
    assert (body.max_output_tokens, body.choices, body.media_bytes) == (None, 1, 0)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"1", b"{'a': 1}"])
def test_what_is_no_json_object_tells_nothing(body):
    assert facts(body) is NOTHING


MEDIA = "A" * 5000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + MEDIA}},
        {"type": "input_image", "image_url": "data:image/png;base64," + MEDIA},
        {"type": "input_audio", "input_audio": {"data": MEDIA, "format": "wav"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": MEDIA}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": MEDIA}}]},
    ],
)
@pytest.mark.parametrize("field", ["messages", "input"])
def test_media_is_counted_apart(part, field):
    text = {"type": "text", "text": "base64 " * 1000}
    assert len(MEDIA) <= told(**{field: [{"role": "user", "content": [text, part]}]}).media_bytes < len(MEDIA) + 100


def test_an_address_of_media_is_not_media():
    part = {"type": "image_url", "image_url": {"url": "https://example.test/base64"}}
    assert told(messages=[{"role": "user", "content": [part, {"text": "base64"}]}]).media_bytes == 0


def test_the_model_of_a_form():
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n'
    form += b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--B--\r\n'
    assert multipart_facts(form).model == "whisper-1"
    assert multipart_facts(b"nothing") is NOTHING


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)


@given(
    st.dictionaries(st.text().filter(lambda key: key != "stream_options"), JSON),
    st.sampled_from(["", " ", "\n\t"]),
    st.booleans(),
)
def test_the_insertion_changes_nothing_else(fields, space, pretty):
    body = (space + json.dumps(fields, indent=2 if pretty else None)).encode()
    asked = with_usage_requested(body, facts(body).fields)
    inserted = b'"stream_options":{"include_usage":true}' + (b"," if fields else b"")
    assert asked.replace(inserted, b"", 1) == body
    assert orjson.loads(asked) == {**fields, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}, "odd"])
def test_options_that_are_there_are_completed(options):
    fields = {"model": "m", "stream": True, "stream_options": options}
    asked = orjson.loads(with_usage_requested(json.dumps(fields).encode(), fields))
    kept = options if isinstance(options, dict) else {}
    assert asked == {**fields, "stream_options": {**kept, "include_usage": True}}

"""What counts of a message, and what does not."""

import orjson
import pytest

from concur_proxy.core.lineage.digests import MAX_PARTS, MAX_TEXT, content_digest, item_digest, message_digest


def call(**changes):
    function = {"name": "run", "arguments": '{"a": 1}'}
    return {"id": "call-1", "type": "function", "function": {**function, **changes}}


def assistant(**fields):
    return {"role": "assistant", "content": "Let me see.", **fields}


def use(**changes):
    return {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"a": 1}, **changes}


def result(**changes):
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done", **changes}


def image(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


SAME = [
    (assistant(), assistant(reasoning_content="Hm.")),
    (assistant(), assistant(reasoning="Hm.", refusal=None, tool_calls=[], annotations=[])),
    (assistant(), assistant(content="<think>Hm.</think>\n\nLet me see.")),
    (assistant(), assistant(content=[{"type": "text", "text": "Let me see."}])),
    (
        assistant(),
        assistant(content=[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Let me see."}]),
    ),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call()], reasoning_content="Hm.")),
    (assistant(content=None, tool_calls=[call()]), assistant(content="", tool_calls=[call()])),
    (assistant(content=None, tool_calls=[call()]), {"role": "assistant", "tool_calls": [call()]}),
    (
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "a"},
    ),
    (
        {"role": "user", "content": [result()]},
        {"role": "user", "content": [result(content=[{"type": "text", "text": "done"}], cache_control={})]},
    ),
]

OTHER = [
    (assistant(), {"role": "user", "content": "Let me see."}),
    (assistant(), assistant(content="Let me see")),
    (assistant(), assistant(tool_calls=[call()])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[{**call(), "id": "call-2"}])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(arguments='{"a": 2}')])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(), {**call(), "id": "call-2"}])),
    (assistant(tool_calls=[call()]), assistant(tool_calls=[call(name="walk")])),
    (
        {"role": "tool", "tool_call_id": "call-1", "content": "done"},
        {"role": "tool", "tool_call_id": "call-2", "content": "done"},
    ),
    ({"role": "user", "content": [image("AAAA")]}, {"role": "user", "content": [image("AAAB")]}),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": "ab"}]},
    ),
    ({"role": "assistant", "content": [use()]}, {"role": "assistant", "content": [use(id="toolu_2")]}),
    ({"role": "assistant", "content": [use()]}, {"role": "assistant", "content": [use(input={"a": 2})]}),
    ({"role": "user", "content": [result()]}, {"role": "user", "content": [result(tool_use_id="toolu_2")]}),
    ({"role": "user", "content": [result()]}, {"role": "user", "content": [result(content="failed")]}),
    ({"role": "user", "content": "a" * MAX_TEXT}, {"role": "user", "content": "a" * MAX_TEXT + "a"}),
    ({"role": "user", "content": "a" * MAX_TEXT}, {"role": "user", "content": "a" * (MAX_TEXT - 1) + "b"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_clients_add_or_leave_out_between_turns_does_not_count(one, other):
    assert message_digest(one) == message_digest(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_was_said_counts(one, other):
    assert message_digest(one) != message_digest(other)


def test_items_of_the_responses_api():
    function_call = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}
    assert item_digest({"type": "reasoning", "id": "rs_1", "summary": []}) is None
    assert item_digest({**function_call, "id": "fc_1", "status": "completed"}) == item_digest(function_call)
    assert item_digest({**function_call, "call_id": "d"}) != item_digest(function_call)
    assert item_digest({**output, "output": [{"type": "output_text", "text": "done"}]}) == item_digest(output)
    assert item_digest({**output, "output": "failed"}) != item_digest(output)
    message = {"role": "user", "content": "a"}
    parts = {"type": "message", "role": "user", "id": "msg_1", "content": [{"type": "input_text", "text": "a"}]}
    assert item_digest(parts) == item_digest(message) == message_digest(message)


def test_a_text_that_is_long_counts_with_both_ends_and_its_length():
    """So that the cost of a message is bounded."""
    middle = MAX_TEXT // 2
    text = "a" * (MAX_TEXT + 10)
    assert content_digest(text) == content_digest(text[:middle] + "b" + text[middle + 1 :])
    assert content_digest(text) != content_digest("b" + text[1:])
    assert content_digest(text) != content_digest(text[:-1] + "b")
    parts = [{"type": "text", "text": "a"}] * (MAX_PARTS + 5)
    assert content_digest(parts) == content_digest(parts[:-1])


NESTED = orjson.loads('{"role":"assistant","content":[{"type":"tool_use","input":' + "[" * 900 + "]" * 900 + "}]}")


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "text",
        {},
        {"role": []},
        {"role": {}, "content": {}},
        {"role": "user", "content": [None, 1, [], {}, {"text": []}, {"type": []}, {"type": {}, "image_url": []}]},
        {"role": "assistant", "tool_calls": [None, {}, {"function": []}, {"id": [], "function": {"name": {}}}]},
        {"role": "assistant", "tool_calls": {}, "tool_call_id": {}},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "tool_result", "content": []}]}]},
        {
            "role": "user",
            "content": [{"type": "image", "source": {"data": []}}, {"type": "file", "file": {"file_id": 1}}],
        },
        {"type": [], "call_id": {}},
        {"role": "user", "content": "\ud800"},
        NESTED,
    ],
)
def test_nothing_that_json_can_hold_is_an_error(message):
    assert isinstance(message_digest(message), int)
    item_digest(message)

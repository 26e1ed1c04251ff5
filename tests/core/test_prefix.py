import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.prefix import MAX_PARTS, MAX_TEXT, prefix_key

SYSTEM = {"role": "system", "content": "You are an agent."}
TOOL = {"type": "function", "function": {"name": "run", "description": "runs", "parameters": {"properties": {"a": {}}}}}
USER = {"role": "user", "content": "hello"}


def chat(*messages, **fields):
    return {"model": "m", "messages": list(messages), **fields}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (chat(SYSTEM, USER), chat(SYSTEM, {"role": "user", "content": "other"}, USER)),
        (chat(SYSTEM, USER, tools=[TOOL]), chat(SYSTEM, tools=[TOOL], temperature=1)),
        ({"instructions": "be good", "input": "x"}, {"instructions": "be good", "input": [USER]}),
        ({"system": "be good", "messages": [USER]}, {"system": "be good", "messages": []}),
        ({"prompt": "a" * 2000 + "b"}, {"prompt": "a" * 2000 + "c"}),
        ({"prompt": [1] * 2000 + [2]}, {"prompt": [1] * 2000 + [3]}),
    ],
)
def test_bodies_that_start_alike_have_one_key(one, other):
    assert prefix_key(one) == prefix_key(other) is not None


BASE = chat(SYSTEM, USER, tools=[TOOL])


@pytest.mark.parametrize(
    "other",
    [
        chat({"role": "system", "content": "You are another."}, tools=[TOOL]),
        chat({"role": "system", "content": [{"type": "text", "text": "You are an agent!"}]}, tools=[TOOL]),
        chat(SYSTEM, {"role": "developer", "content": "more"}, tools=[TOOL]),
        chat(SYSTEM),
        chat(SYSTEM, tools=[TOOL, TOOL]),
        chat(SYSTEM, tools=[{"type": "function", "function": {"name": "walk"}}]),
        chat(SYSTEM, tools=[{"name": "run", "input_schema": {"properties": {"b": {}}}}]),
        chat(SYSTEM, tools=[TOOL], cache_salt="s"),
        chat(SYSTEM, tools=[TOOL], lora_path="l"),
        chat(SYSTEM, tools=[TOOL]) | {"model": "adapter"},
        {"model": "m", "system": "You are another.", "tools": [TOOL]},
        {"model": "m", "instructions": "You are another.", "tools": [TOOL]},
        {"model": "m", "input": [{"role": "developer", "content": "other"}], "tools": [TOOL]},
        {"model": "m", "prompt": "other", "tools": [TOOL]},
    ],
)
def test_what_makes_a_prefix_another(other):
    assert prefix_key(other) is not None
    assert prefix_key(other) != prefix_key(BASE)


@pytest.mark.parametrize(
    "body",
    [{}, chat(USER), {"input": "text"}, chat(USER, tools=[]), {"system": ""}, {"messages": "x"}, {"tools": {"a": 1}}],
)
def test_bodies_without_anything_to_share(body):
    assert prefix_key(body) is None


def test_one_text_in_parts_is_that_text():
    parts = {"role": "system", "content": [{"type": "text", "text": SYSTEM["content"]}]}
    assert prefix_key(chat(parts)) == prefix_key(chat(SYSTEM))


def test_work_is_bounded():
    long = "a" * MAX_TEXT
    assert prefix_key({"system": long + "b"}) == prefix_key({"system": long + "c"}) != prefix_key({"system": long})
    many = [TOOL] * MAX_PARTS
    assert prefix_key(chat(tools=[*many, TOOL])) == prefix_key(chat(tools=many))


FIELDS = st.sampled_from(
    [
        "messages",
        "input",
        "tools",
        "system",
        "instructions",
        "prompt",
        "role",
        "content",
        "text",
        "function",
        "name",
        "parameters",
        "properties",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_body_has_a_key_or_none(body):
    assert prefix_key(body) == prefix_key(body)

"""Which requests are talks, and of what."""

import pytest

from concur_proxy.core.lineage import talk_of
from concur_proxy.core.lineage.lengths import Lengths
from concur_proxy.core.lineage.messages import MAX_MESSAGES

USER = {"role": "user", "content": "a"}
SYSTEM = {"role": "system", "content": "b"}


def points(fields):
    talk = talk_of(fields)
    assert talk is not None
    return talk.points(7, Lengths(10))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": []},
        {"messages": "a"},
        {"messages": [SYSTEM]},
        {"messages": [SYSTEM, {"role": "developer", "content": "c"}]},
        {"messages": [USER] * (MAX_MESSAGES + 1)},
        {"input": ""},
        {"input": []},
        {"input": {}},
        {"input": ["a", "b"] * MAX_MESSAGES},
        {"input": [{"type": "reasoning"}]},
        {"input": [SYSTEM], "instructions": "x"},
    ],
)
def test_what_nobody_can_go_on_from_is_no_talk(fields):
    assert talk_of(fields) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"messages": [USER]}, {"messages": [USER], "temperature": 1, "tools": [{}], "stream": True, "model": "n"}),
        ({"input": "a"}, {"input": [USER]}),
        (
            {"input": "a"},
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
        ),
        (
            {"messages": [USER], "system": "b"},
            {"messages": [USER], "system": [{"type": "text", "text": "b", "cache_control": {}}]},
        ),
        ({"input": [USER, {"type": "reasoning"}, USER]}, {"input": [USER, USER]}),
    ],
)
def test_the_same_words_are_the_same_talk(one, other):
    assert points(one) == points(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"messages": [USER]}, {"messages": [SYSTEM, USER]}),
        ({"messages": [USER], "system": "b"}, {"messages": [USER], "system": "c"}),
        ({"messages": [USER], "system": "b"}, {"messages": [USER]}),
        ({"input": "a", "instructions": "b"}, {"input": "a", "instructions": "c"}),
        ({"input": "a", "previous_response_id": "resp_1"}, {"input": "a", "previous_response_id": "resp_2"}),
        ({"messages": [USER, USER]}, {"messages": [USER]}),
    ],
)
def test_other_words_are_another_talk(one, other):
    assert points(one)[-1] != points(other)[-1]


def test_tools_tell_an_agent():
    assert talk_of({"messages": [USER], "tools": [{}]}).has_tools
    assert not talk_of({"messages": [USER], "tools": []}).has_tools


@pytest.mark.parametrize("role", [None, [], {}, 7, ""])
def test_roles_may_be_anything(role):
    talk = talk_of({"messages": [{"role": role, "content": "a"}, USER]})
    assert talk.answer(0) is None
    assert isinstance(talk.tail(7, 1), int)

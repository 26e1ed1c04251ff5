import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.sim import tokens
from concur_proxy.sim.answers import answer, arguments_for
from concur_proxy.sim.calls import Call, CallKind
from concur_proxy.sim.stats import EndReason

CALL = Call(CallKind.CHAT, ("x" * 40,), 1, False, False, None, 0, False, 0, None, "")
TOOL = {"name": "read", "parameters": {"properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}}


@given(st.integers(0, 50), st.integers(1, 400), st.booleans(), st.sampled_from([None, TOOL]), st.text(max_size=20))
def test_an_answer_has_the_tokens_it_says_and_no_more_than_there_is_room(seed, room, ignore_eos, tool, prompt):
    call = replace(CALL, ignore_eos=ignore_eos, tool=tool)
    said = answer(call, prompt, 0, room, seed)
    assert 1 <= said.tokens <= room
    assert tokens.count(prompt + said.text) == tokens.count(prompt) + said.tokens or tool
    assert tool or not ignore_eos or (said.tokens, said.end) == (room, EndReason.LENGTH)
    streamed = "".join(said.piece(position, position + 1) for position in range(said.tokens))
    assert streamed == (said.arguments if tool else said.text)


def test_the_same_seed_says_the_same_and_another_something_else():
    said = answer(CALL, "hello", 0, 500, seed=1)
    assert said == answer(CALL, "hello", 0, 500, seed=1)
    others = [
        answer(CALL, "hello", 0, 500, seed=2),
        answer(CALL, "hello", 1, 500, seed=1),
        answer(CALL, "hullo", 0, 500, seed=1),
        answer(replace(CALL, seed=9), "hello", 0, 500, seed=1),
    ]
    assert said.text not in [other.text for other in others]


def test_the_words_of_a_seed_never_change():
    """Same seed, same bytes: also from one release, one process and one machine to the next."""
    assert answer(CALL, "hello", 0, 4, seed=1).text == "... mim nat tal but"


def test_answers_end_by_themselves_at_different_lengths():
    lengths = [answer(CALL, f"prompt {number}", 0, 10_000, 0).tokens for number in range(300)]
    assert 150 < sorted(lengths)[150] < 260
    assert len(set(lengths)) > 100
    assert answer(replace(CALL, min_tokens=5000), "x", 0, 10_000, 0).tokens == 5000


@pytest.mark.parametrize("room", range(1, 40))
def test_a_tool_call_counts_the_same_when_it_is_sent_back(room):
    said = answer(replace(CALL, tool=TOOL, ignore_eos=True), "x" * 40, 0, room, 0)
    sent_back = tokens.call_text("read", said.arguments)
    if said.end is EndReason.STOP:
        assert said.finish_reason == "tool_calls"
        assert json.loads(said.arguments)["line"] == 1
        assert said.text.startswith(sent_back)
        assert tokens.count(sent_back) == said.tokens == room
    else:
        assert said.finish_reason == "length"
        assert sent_back.startswith(said.text)


def test_a_tool_call_that_cannot_be_made_longer_still_fills_its_last_token():
    counter = {"name": "count", "parameters": {"properties": {"upto": {"type": "integer"}}}}
    said = answer(replace(CALL, tool=counter, ignore_eos=True), "x" * 40, 0, 100, 0)
    assert said.arguments == '{"upto":1}'
    assert len(said.text) == said.tokens * tokens.CHARS


def test_arguments_fit_the_schema_whatever_it_is():
    schema = {
        "properties": {
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "path": {"type": ["string", "null"]},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}},
            "items": {"type": "array"},
            "ratio": {"type": "number"},
            "odd": {"$ref": "#/x"},
            "any": True,
        }
    }
    made = json.loads(arguments_for({"name": "f", "parameters": schema}, " bak"))
    assert made == {
        "mode": "fast", "path": " bak", "deep": {"on": True}, "items": [], "ratio": 1.0, "odd": "", "any": "",
    }  # fmt: skip


@pytest.mark.parametrize("parameters", [None, {}, [], "x", {"properties": 5}])
def test_a_function_without_a_usable_schema_gets_one_argument(parameters):
    assert json.loads(arguments_for({"name": "f", "parameters": parameters}, " bak")) == {"input": " bak"}

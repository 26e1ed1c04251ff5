import json

import pytest

from concur_proxy.sim.calls import ApiError, CallKind, Limits, json_object, parse, texts

LIMITS = Limits(model="tiny", max_model_len=100)
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def chat(limits: Limits = LIMITS, **fields):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse(CallKind.CHAT, json.dumps(body).encode(), limits)


def text(**fields):
    return parse(CallKind.TEXT, json.dumps(fields).encode(), LIMITS)


def test_defaults_of_a_chat():
    call = chat()
    assert (call.choices, call.stream, call.include_usage, call.ignore_eos) == (1, False, False, False)
    assert (call.max_tokens, call.min_tokens, call.seed, call.tool, call.cache_salt) == (None, 0, 0, None, "")
    assert call.room(call.prompts[0], 100) == 100 - len(call.prompts[0]) // 4


def test_everything_a_client_may_ask():
    call = chat(
        n=3, stream=True, stream_options={"include_usage": True}, max_tokens=9, min_tokens=2, ignore_eos=True, seed=5
    )
    assert (call.choices, call.stream, call.include_usage, call.ignore_eos) == (3, True, True, True)
    assert (call.max_tokens, call.min_tokens, call.seed) == (9, 2, 5)
    assert call.room("x" * 40, 100) == 9
    assert call.room("x" * 380, 100) == 5


def test_the_newer_name_of_the_limit_wins():
    assert chat(max_tokens=9, max_completion_tokens=4).max_tokens == 4


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("abc", ("abc",)),
        (["abc", "de"], ("abc", "de")),
        ([0x64636261, 0x68676665], ("abcdefgh",)),
        ([[0x64636261], [0x68676665]], ("abcd", "efgh")),
    ],
)
def test_text_prompts_come_in_four_forms(prompt, read):
    assert text(prompt=prompt).prompts == read


@pytest.mark.parametrize(
    ("choice", "always", "called"),
    [
        ("auto", False, None),
        ("auto", True, "read"),
        ("none", True, None),
        ("required", False, "read"),
        ({"type": "function", "function": {"name": "write"}}, False, "write"),
    ],
)
def test_a_tool_is_called_when_it_must_be_or_when_the_server_always_does(choice, always, called):
    write = {"type": "function", "function": {"name": "write"}}
    call = chat(Limits("tiny", 1000, tool_calls=always), tools=[TOOL, write], tool_choice=choice)
    assert (call.tool and call.tool["name"]) == called


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": ["hi"]}, 400, "messages"),
        ({"messages": [{"content": "hi"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": ["hi"]}]}, 400, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 400, "input_tokens"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_completion_tokens": "9"}, 400, "max_completion_tokens"),
        ({"n": 65}, 400, "n"),
        ({"n": True}, 400, "n"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "nix"}}}, 400, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"function": 5}}, 400, "tool_choice"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, 400, "tools"),
        ({"tools": [5], "tool_choice": "required"}, 400, "tools"),
        ({"tools": {"a": 1}, "tool_choice": "required"}, 400, "tools"),
    ],
)
def test_a_bad_request_is_refused_with_the_field_it_is_about(fields, status, param):
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    assert caught.value.status == status
    error = caught.value.body()["error"]
    assert (error["param"], error["code"]) == (param, status)
    assert error["message"]


@pytest.mark.parametrize("prompt", ["", None, [], [""], [-1], [["a"]], 5, {"a": 1}])
def test_what_is_no_text_prompt_is_refused(prompt):
    with pytest.raises(ApiError, match="prompt"):
        text(prompt=prompt)


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff", b'"a"'])
def test_a_body_that_is_no_object_is_refused(raw):
    with pytest.raises(ApiError, match="The body"):
        json_object(raw)


def test_embeddings_and_tokens_are_asked_for_in_several_ways():
    assert texts({"input": ["a", "b"]}) == ("a", "b")
    assert texts({"prompt": "a"}) == ("a",)
    assert texts({"messages": [{"role": "user", "content": "hi"}]})[0].startswith("<|user|>")


def test_an_answer_may_go_on_from_its_own_beginning():
    messages = [{"role": "user", "content": "hi"}]
    begun = [*messages, {"role": "assistant", "content": " bab bad"}]
    (prompt,) = chat(messages=messages).prompts
    assert chat(messages=begun, continue_final_message=True, add_generation_prompt=False).prompts == (
        prompt + " bab bad",
    )
    assert chat(messages=begun).prompts != (prompt + " bab bad",)

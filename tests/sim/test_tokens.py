from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.sim import tokens

texts = st.text(max_size=80)
conversations = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), texts), min_size=1, max_size=6)


def messages(pairs):
    return [{"role": role, "content": content} for role, content in pairs]


@given(conversations, st.integers(1, 60), st.integers(0, 9), texts)
def test_an_answer_of_n_tokens_counts_n_tokens_when_it_is_sent_back(pairs, length, seed, more):
    said = tokens.words(Random(seed), length)
    before = tokens.chat(messages(pairs))
    assert tokens.count(said) == length
    after = tokens.chat(messages([*pairs, ("assistant", said), ("user", more)]))
    assert after.startswith(before + said)
    assert len(before) % tokens.CHARS == 0
    stripped = tokens.chat(messages([*pairs, ("assistant", said.strip()), ("user", more)]))
    assert stripped == after


@given(st.text(max_size=400), st.integers(0, 400), st.integers(1, 5))
def test_hashes_of_a_beginning_are_the_beginning_of_the_hashes(text, cut, size):
    whole = tokens.block_hashes(text, size)
    width = size * tokens.CHARS
    cut = min(cut, len(text)) // width * width
    first = tokens.block_hashes(text[:cut], size)
    assert whole[: len(first)] == first
    rest = tokens.block_hashes(text[cut:], size, first[-1] if first else 0)
    assert first + rest == whole
    assert len(whole) == len(text) // width


def test_a_block_is_known_by_all_that_is_before_it():
    one, other = "a" * 64 + "b" * 64, "c" * 64 + "b" * 64
    assert tokens.block_hashes(one, 16)[1] != tokens.block_hashes(other, 16)[1]


def test_a_tool_call_comes_back_as_the_text_it_was():
    arguments = '{"path":" bak dil"}'
    call = {"id": "x", "type": "function", "function": {"name": "read", "arguments": arguments}}
    before = tokens.chat(messages([("user", "hi")]))
    history = [*messages([("user", "hi")]), {"role": "assistant", "content": None, "tool_calls": [call]}]
    after = tokens.chat([*history, {"role": "tool", "tool_call_id": "x", "content": "ok"}])
    assert after.startswith(before + tokens.call_text("read", arguments))


def test_tools_come_before_the_conversation():
    tool = {"type": "function", "function": {"name": "read"}}
    plain, equipped = tokens.chat(messages([("user", "hi")])), tokens.chat(messages([("user", "hi")]), [tool])
    assert equipped.endswith(plain)
    assert len(equipped) > len(plain)


def test_pictures_count_a_fixed_number_of_tokens_and_differ():
    def prompt(url):
        parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
        return tokens.chat([{"role": "user", "content": parts}])

    small, large = prompt("data:,x"), prompt("data:," + "y" * 100_000)
    assert tokens.count(small) == tokens.count(large)
    assert small != large
    assert tokens.count(small) >= tokens.MEDIA_TOKENS


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_token_ids_go_through_text_and_back(numbers):
    text = tokens.from_ids(numbers)
    assert tokens.count(text) == len(numbers)
    assert tokens.ids(text) == numbers


@pytest.mark.parametrize("bad", [[-1], [2**32], ["a"], [1.5], None, 7])
def test_what_is_no_token_id_is_refused(bad):
    with pytest.raises((TypeError, ValueError)):
        tokens.from_ids(bad)


def test_a_digest_is_the_same_in_every_process():
    assert tokens.digest("abc é 😀") == 2507764482

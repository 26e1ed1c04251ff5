"""Shared prefixes: how long they are, and that each counts once."""

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.shared import KNOWN, PrefixSizes, SharedTokens


def test_a_prefix_is_as_long_as_first_turns_find_it():
    sizes = PrefixSizes()
    assert (sizes.of(1), sizes.of(None)) == (0, 0)
    sizes.learn(1, 0)
    assert sizes.of(1) == 0  # nobody had it before: nothing is known
    sizes.learn(1, 800)
    assert sizes.of(1) == 800


def test_a_copy_of_a_whole_conversation_does_not_pass_for_a_prefix():
    sizes = PrefixSizes()
    sizes.learn(1, 50_000)
    assert sizes.learn(1, 800) == 800
    assert sizes.learn(1, 50_800) == 5800  # a tenth of the way


def test_the_oldest_of_many_prefixes_are_forgotten():
    """Invariant 9."""
    sizes = PrefixSizes()
    for number in range(KNOWN + 10):
        sizes.learn(number, 100)
    assert len(sizes) == KNOWN
    assert (sizes.of(9), sizes.of(10)) == (0, 100)


def test_joining_costs_the_first_user_only():
    shared = SharedTokens()
    assert shared.cost_of(1, 500) == 500
    shared.join(1, 500)
    assert (shared.cost_of(1, 500), shared.cost_of(None, 500)) == (0, 0)
    shared.join(1, 500)
    shared.leave(1)
    assert shared.tokens == 500
    shared.leave(1)
    assert shared.tokens == 0


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "resize"]), st.integers(0, 2), st.integers(0, 900))))
def test_what_is_counted_is_what_is_used(steps):
    shared, users, size = SharedTokens(), [0, 0, 0], [0, 0, 0]
    for step, prefix, tokens in steps:
        if step == "join":
            if not users[prefix]:
                size[prefix] = tokens
            users[prefix] += 1
            shared.join(prefix, tokens)
        elif step == "leave" and users[prefix]:
            users[prefix] -= 1
            shared.leave(prefix)
        elif step == "resize":
            size[prefix] = tokens
            shared.resize(prefix, tokens)
        assert shared.tokens == sum(tokens for tokens, count in zip(size, users, strict=True) if count)

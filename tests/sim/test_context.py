from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.sim.context import Context

stretches = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=8)


def tokens_of(parts) -> list[tuple[int, int]]:
    """The slow way: one item per token, each source continued where it was."""
    position: dict[int, int] = {}
    tokens = []
    for source, count in parts:
        start = position.get(source, 0)
        tokens += [(source, start + index) for index in range(count)]
        position[source] = start + count
    return tokens


def context_of(parts, size: int) -> Context:
    context, position = Context(size), {}
    for source, count in parts:
        context.append(source, count, start=position.get(source, 0))
        position[source] = position.get(source, 0) + count
    return context


@given(stretches, stretches, st.integers(1, 17))
def test_two_contexts_share_exactly_the_blocks_before_their_first_difference(left, right, size):
    first, second = context_of(left, size), context_of(right, size)
    assert first.tokens == len(tokens_of(left))
    assert len(first.hashes) == first.tokens // size
    same = 0
    for mine, theirs in zip(tokens_of(left), tokens_of(right), strict=False):
        if mine != theirs:
            break
        same += 1
    shared = 0
    for mine, theirs in zip(first.hashes, second.hashes, strict=False):
        shared += mine == theirs
    assert shared == same // size


@given(st.integers(0, 50), st.integers(0, 50))
def test_it_does_not_matter_in_how_many_pieces_a_stretch_is_added(first, second):
    whole, pieces = Context(8), Context(8)
    whole.append(3, first + second)
    pieces.append(3, first)
    pieces.append(3, second, start=first)
    assert whole.hashes == pieces.hashes


def test_a_block_is_known_by_all_that_is_before_it():
    one, other = Context(4), Context(4)
    for context, source in ((one, 1), (other, 2)):
        context.append(source, 4)
        context.append(3, 4)
    assert one.hashes[1] != other.hashes[1]


def test_hashes_already_given_away_grow_with_the_context():
    context = Context(4)
    context.append(1, 8)
    given_away = context.hashes
    context.append(1, 8, start=8)
    assert len(given_away) == 4

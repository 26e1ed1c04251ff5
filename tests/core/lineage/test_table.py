"""Memory is bounded, whatever comes (invariant 9)."""

import gc
import resource
import tracemalloc
from pathlib import Path

import pytest

from concur_proxy.core.lineage import CONTINUED, NEW, Lineage, talk_of
from concur_proxy.core.lineage.table import MAX_POINTS, MAX_SIBLINGS, POINT_BYTES, RUN_BYTES


def chat(*texts):
    roles = ("user", "assistant")
    return talk_of({"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]})


def turn(lineage, talk, namespace="key", *, completed=True):
    found = lineage.recognise(namespace, talk)
    lineage.answered(found.run, completed=completed)
    return found


def single(number):
    return chat(f"message {number}")


def siblings(_number):
    return chat("always the same")


def deep(number):
    """Fifty turns of an agent, then another agent."""
    agent, depth = divmod(number, 50)
    return chat(*(f"{agent} {index}" for index in range(1, 2 * depth + 2)))


def prompts(number):
    return talk_of({"prompt": "x" * (number % 300) + str(number)})


def edits(number):
    return chat(*(f"{index}" for index in range(40)), f"edit {number}")


@pytest.mark.parametrize("kind", [single, siblings, prompts, edits])
@pytest.mark.parametrize("completed", [True, False])
def test_memory_is_bounded(kind, completed):
    limit = 200_000
    lineage = Lineage(limit, name="test")
    for number in range(5000):
        turn(lineage, kind(number), completed=completed)
        assert lineage.bytes <= limit
    assert len(lineage) <= limit // RUN_BYTES


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
def test_a_million_first_messages():
    limit = 4 << 20
    lineage = Lineage(limit, name="test")
    for number in range(20_000):
        turn(lineage, single(number))
    full, before = len(lineage), resident_bytes()
    for number in range(20_000, 1_000_000):
        lineage.recognise("key", single(number))
    assert len(lineage) == full
    assert lineage.bytes <= limit
    assert resident_bytes() - before < limit


@pytest.mark.parametrize(
    ("kind", "count"), [(single, 10_000), (siblings, 2000), (deep, 2000), (prompts, 10_000), (edits, 2000)]
)
def test_the_reckoning_is_not_below_what_is_taken(kind, count):
    gc.collect()
    tracemalloc.start()
    lineage = Lineage(1 << 30, name="test")
    for number in range(count):
        turn(lineage, kind(number))
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size <= lineage.bytes + 64_000


def test_the_run_unheard_of_for_longest_is_forgotten():
    lineage = Lineage(10 * (RUN_BYTES + 2 * POINT_BYTES), name="test")
    kept = turn(lineage, single("kept"))
    for number in range(100):
        turn(lineage, single(number))
        kept_again = turn(lineage, chat("message kept", *(["a", "b"] * (number + 1))))
        assert (kept_again.rule, kept_again.session) == (CONTINUED, kept.session)
    assert turn(lineage, chat("message 0", "a", "b")).rule == NEW
    assert turn(lineage, chat("message 99", "a", "b")).rule == CONTINUED


def test_a_long_run_is_found_by_its_first_and_its_last_points():
    lineage = Lineage(1 << 24, name="test")
    texts = ["begin"]
    first = turn(lineage, chat(*texts))
    for number in range(3 * MAX_POINTS):
        texts += [f"a{number}", f"b{number}"]
        assert turn(lineage, chat(*texts)).session == first.session
    assert turn(lineage, chat(*texts[:-2], "a", "edited")).parent == first.session
    assert turn(lineage, chat(*texts[:5], "a", "edited")).parent is None, "that far back nothing is known any more"
    assert lineage.bytes < 3 * (RUN_BYTES + (MAX_POINTS + 1) * POINT_BYTES)


def test_of_many_siblings_the_first_makes_room():
    lineage = Lineage(1 << 24, name="test")
    found = [turn(lineage, siblings(number)) for number in range(MAX_SIBLINGS + 10)]
    assert len(lineage) == MAX_SIBLINGS
    following = turn(lineage, chat("always the same", "a", "b"))
    assert following.session == found[10].session


def test_ids_differ_from_process_to_process():
    one, two = Lineage(1 << 20, name="one"), Lineage(1 << 20, name="two")
    assert turn(one, single(1)).session.id == "one-1"
    assert turn(two, single(1)).session.id == "two-1"

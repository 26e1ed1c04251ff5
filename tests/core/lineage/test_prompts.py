"""Plain prompts: text, or token numbers."""

from random import Random

import pytest

from concur_proxy.core.lineage import CONTINUED, NEW, Lineage, talk_of
from concur_proxy.core.lineage.prompts import FINE, LARGE_BLOCK, SMALL_BLOCK
from concur_proxy.core.lineage.talk import HEAD_LENGTH, Answer, head


def turn(lineage, prompt, **answer):
    found = lineage.recognise("key", talk_of({"prompt": prompt}))
    lineage.answered(found.run, completed=True, **answer)
    return found


def texts(random, count):
    return "".join(random.choices("abc ", k=count))


def tokens(random, count):
    return random.choices(range(50_000), k=count)


@pytest.mark.parametrize("make", [texts, tokens])
@pytest.mark.parametrize(
    "first",
    [1, SMALL_BLOCK - 1, SMALL_BLOCK, SMALL_BLOCK + 1, FINE - 1, FINE, FINE + LARGE_BLOCK, FINE + LARGE_BLOCK + 1],
)
def test_a_prompt_that_grows_is_one_session(make, first):
    random, lineage = Random(first), Lineage(1 << 24, name="test")
    prompt = make(random, first)
    begin = turn(lineage, prompt)
    assert begin.rule == NEW
    for step in (1, 10, SMALL_BLOCK, 1000, LARGE_BLOCK, 3 * LARGE_BLOCK, 1):
        prompt = prompt + make(random, step)
        found = turn(lineage, prompt)
        assert (found.session, found.rule) == (begin.session, CONTINUED)


def test_prompts_that_only_begin_alike_are_sessions_of_their_own():
    lineage = Lineage(1 << 24, name="test")
    template = texts(Random(1), 3 * SMALL_BLOCK + 17)
    found = [turn(lineage, f"{template}{number} and some words") for number in range(100)]
    assert len({each.session for each in found}) == 100
    assert {each.rule for each in found} == {NEW}


def test_the_same_prompt_again_is_a_sibling_and_their_answers_tell_them_apart():
    lineage = Lineage(1 << 24, name="test")
    answers = [f"{number} " * HEAD_LENGTH for number in range(4)]
    found = [turn(lineage, "a question", answer=Answer(head=head(text))) for text in answers]
    assert len({each.session for each in found}) == 4
    for number in (2, 0, 3, 1):
        assert turn(lineage, f"a question {answers[number]} and more").session == found[number].session


@pytest.mark.parametrize("prompt", [None, "", [], {}, 7, ["a", "b"], [[1, 2], [3]], [1, "a"], [True], [1.5]])
def test_what_is_no_single_prompt_is_nobodys(prompt):
    assert talk_of({"prompt": prompt}) is None

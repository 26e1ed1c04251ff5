"""The rules of ``recogniser``, by number."""

import pytest

from concur_proxy.core.lineage import BRANCH, COMPACTED, CONTINUED, NEW, Lineage, talk_of
from concur_proxy.core.lineage.talk import Answer
from concur_proxy.core.lineage.talk import said as digest

SYSTEM = {"role": "system", "content": "You are an agent."}
TASK = {"role": "user", "content": "Do it."}


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def calls(call):
    function = {"name": "run", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }


def result(call, text="done"):
    return {"role": "tool", "tool_call_id": call, "content": text}


class Case:
    """Turns of one API key, each answered before the next one unless a test says otherwise."""

    def __init__(self):
        self.lineage = Lineage(1 << 24, name="test")

    def begin(self, *messages, namespace="key", retry=False, **fields):
        talk = talk_of({"messages": list(messages), **fields})
        return self.lineage.recognise(namespace, talk, retry=retry)

    def end(self, found, *, completed=True, **answer):
        self.lineage.answered(found.run, completed=completed, **answer)

    def turn(self, *messages, **options):
        found = self.begin(*messages, **options)
        self.end(found)
        return found


@pytest.fixture
def case():
    return Case()


# 7, 2: new, continued


def test_turns_that_extend_the_last_one_are_one_session(case):
    history = [SYSTEM, TASK]
    first = case.turn(*history)
    assert (first.rule, first.parent, first.ended) == (NEW, None, None)
    for number in range(50):
        history += [calls(f"call-{number}"), result(f"call-{number}")]
        found = case.turn(*history)
        assert (found.rule, found.session) == (CONTINUED, first.session)


def test_other_tasks_are_other_sessions_though_all_begin_with_one_system_text(case):
    found = [case.turn(SYSTEM, user(f"task {number}")) for number in range(10)]
    assert len({each.session for each in found}) == 10
    assert {each.rule for each in found} == {NEW}
    again = [case.turn(SYSTEM, user(f"task {number}"), said("a"), user("b")) for number in range(10)]
    assert [each.session for each in again] == [each.session for each in found]


def test_a_client_that_leaves_the_answers_out_is_known_all_the_same(case):
    first = case.turn(SYSTEM, TASK)
    assert case.turn(SYSTEM, TASK, user("more")).session == first.session


def test_several_messages_at_once_are_one_turn(case):
    first = case.turn(TASK)
    assert case.turn(TASK, calls("a"), result("a"), said("b"), user("c"), user("d")).session == first.session


def test_two_keys_never_share_a_session(case):
    first = case.turn(TASK, namespace="one")
    other = case.turn(TASK, said("a"), user("b"), namespace="two")
    assert other.session != first.session
    assert (other.session.namespace, other.rule) == ("two", NEW)


def test_two_keys_never_share_a_session_even_where_their_hashes_are_the_same(case, monkeypatch):
    """Every point is made the same for all namespaces: the namespace itself still tells."""
    monkeypatch.setattr("concur_proxy.core.lineage.recogniser.seed_of", lambda *_: 0)
    histories = ([TASK], [TASK, said("a"), user("b")], [TASK, said("a"), user("b"), said("c"), user("d")])
    for history in (*histories, *histories):
        one, two = case.turn(*history, namespace="one"), case.turn(*history, namespace="two")
        assert (one.session.namespace, two.session.namespace) == ("one", "two")
        assert {parent.namespace for parent in (one.parent, one.ended) if parent} <= {"one"}
        assert {parent.namespace for parent in (two.parent, two.ended) if parent} <= {"two"}


def test_the_clients_cache_key_tells_sessions_apart(case):
    first, second = (case.turn(TASK, prompt_cache_key=key) for key in ("a", "b"))
    assert case.turn(TASK, said("x"), user("y"), prompt_cache_key="b").session == second.session
    assert case.turn(TASK, said("x"), user("y"), prompt_cache_key="a").session == first.session


def test_questions_beside_do_not_keep_a_session_from_going_on(case):
    """A guard asks about each turn: its question has the history, and leaves the answer out."""
    history = [SYSTEM, TASK]
    first = case.turn(*history)
    history += [calls("a"), result("a")]
    for number in range(5):
        assert case.turn(*history).session == first.session
        assert case.turn(*history, user("Is this safe?")).session == first.session
        asked = case.begin(*history, user("And this?"))
        history += [calls(f"call-{number}"), result(f"call-{number}")]
        found = case.turn(*history)
        assert (found.rule, found.session) == (CONTINUED, first.session)
        case.end(asked)


@pytest.mark.parametrize("turns", [1, 5])
def test_a_question_asked_without_the_tools_does_not_keep_a_session_from_going_on(case, turns):
    """Titles, summaries and judges have the history with its last answer, and no tools."""
    history, tools = [SYSTEM, TASK], [{"type": "function"}]
    first = case.turn(*history, tools=tools)
    for number in range(turns):
        history.append(calls(f"call-{number}"))
        beside = case.turn(*history, user("Give it a title."))
        history.append(result(f"call-{number}"))
        assert (beside.session, case.turn(*history, tools=tools).session) == (first.session, first.session)


def test_siblings_that_ask_beside_are_told_apart_by_the_answers_that_count(case):
    history, tools = [SYSTEM, TASK], [{"type": "function"}]
    runs = [case.begin(*history, tools=tools) for _ in range(4)]
    for number, found in enumerate(runs):
        case.end(found, answer=Answer(text=digest(f"plan {number}")))
    for number in reversed(range(4)):
        beside = case.begin(*history, said(f"plan {number}"), user("Give it a title."))
        case.end(beside, answer=Answer(text=digest("A title")))
        assert beside.session == runs[number].session
    for number in (2, 0, 3, 1):
        found = case.turn(*history, said(f"plan {number}"), user("go on"), tools=tools)
        assert found.session == runs[number].session


def test_however_many_questions_are_asked_beside_the_session_goes_on(case):
    history = [SYSTEM, TASK, calls("a"), result("a")]
    first = case.turn(*history[:2])
    case.turn(*history)
    for number in range(50):
        assert case.turn(*history, user(f"question {number}")).session == first.session
    assert case.turn(*history, calls("b"), result("b")).session == first.session


def test_questions_about_what_many_share_are_not_one_session(case):
    """The document alone is a request that warms the cache."""
    document = user("A long document.")
    found = [case.turn(SYSTEM, document), *(case.turn(SYSTEM, document, user(f"question {n}")) for n in range(5))]
    assert len({each.session for each in found[1:]}) == 5


# 1: the same request


def test_a_request_that_came_to_nothing_is_the_same_turn_when_it_comes_again(case):
    first = case.begin(SYSTEM, TASK)
    case.end(first, completed=False)
    again = case.turn(SYSTEM, TASK)
    assert (again.session, again.rule) == (first.session, CONTINUED)
    assert case.turn(SYSTEM, TASK, said("a"), user("b")).session == first.session


def test_siblings_that_were_refused_take_their_own_sessions_again(case):
    refused = [case.begin(TASK) for _ in range(8)]
    for found in refused:
        case.end(found, completed=False)
    again = [case.begin(TASK) for _ in range(8)]
    assert [found.session for found in again] == [found.session for found in refused]
    assert case.begin(TASK).session not in {found.session for found in refused}


def test_a_client_that_says_so_asks_again(case):
    first = case.begin(TASK)
    assert case.begin(TASK, retry=True).session == first.session
    case.end(first)
    assert case.begin(TASK, retry=True).session == first.session
    assert case.begin(TASK).session != first.session


def test_a_later_turn_that_comes_again_is_the_same_one(case):
    """The client did not like the answer, or has never seen it."""
    first = case.turn(TASK)
    history = (TASK, said("a"), user("b"))
    case.turn(*history)
    again = case.turn(*history)
    assert (again.session, again.rule) == (first.session, CONTINUED)


def test_a_later_turn_that_comes_again_while_it_runs_is_another_session(case):
    first = case.turn(TASK)
    history = (TASK, said("a"), user("b"))
    case.begin(*history)
    assert case.begin(*history).session != first.session


# 1, 2: siblings


def test_siblings_are_told_apart_by_the_answers_they_carry(case):
    found = [case.begin(SYSTEM, TASK) for _ in range(8)]
    assert len({each.session for each in found}) == 8
    for number, each in enumerate(found):
        assert case.lineage.wants_answer(each.run)
        case.end(each, answer=Answer(call=hash(f"call-{number}")))
    for number in (5, 2, 7, 0, 1, 3, 4, 6):
        again = case.begin(SYSTEM, TASK, calls(f"call-{number}"), result(f"call-{number}"))
        assert (again.session, again.rule) == (found[number].session, CONTINUED)


def test_the_one_whose_answer_was_not_read_is_left_over(case):
    alone = case.begin(TASK)
    assert not case.lineage.wants_answer(alone.run)
    sibling = case.begin(TASK)
    case.end(sibling, answer=Answer(text=hash("b")))
    case.end(alone)
    assert case.begin(TASK, said("a"), user("c")).session == alone.session
    assert case.begin(TASK, said("b"), user("c")).session == sibling.session


def test_where_answers_do_not_tell_the_one_that_waits_for_longest_goes_on(case):
    running = case.begin(TASK)
    answered = [case.turn(TASK) for _ in range(3)]
    again = [case.begin(TASK, said(f"edited {number}"), user("more")).session for number in range(4)]
    assert again == [*(found.session for found in answered), running.session]


def test_siblings_that_have_parted_stay_apart(case):
    found = [case.turn(TASK) for _ in range(4)]
    histories = [[TASK, said(f"answer {number}"), user("go on")] for number in range(4)]
    second = [case.turn(*history) for history in histories]
    assert {each.session for each in second} == {each.session for each in found}
    for history, known in zip(reversed(histories), reversed(second), strict=True):
        history += [said("same"), user("same")]
        assert case.turn(*history).session == known.session


# 3: rewritten last messages


def test_a_passing_remark_at_the_end_may_be_taken_out(case):
    remark = user("Remember the rules.")
    first = case.turn(SYSTEM, TASK, remark)
    second = case.turn(SYSTEM, TASK, said("a"), user("b"), remark)
    third = case.turn(SYSTEM, TASK, said("a"), user("b"), said("c"), user("d"), remark)
    assert [first.session] * 2 == [second.session, third.session]


def test_the_last_message_may_lose_what_it_had_only_for_once(case):
    first = case.turn(TASK)
    second = case.turn(TASK, calls("a"), result("a", "done. Now: 12:00"))
    third = case.turn(TASK, calls("a"), result("a", "done."), calls("b"), result("b", "done. Now: 12:01"))
    fourth = case.turn(
        TASK, calls("a"), result("a", "done."), calls("b"), result("b", "done."), calls("c"), result("c", "x")
    )
    assert {second.session, third.session, fourth.session} == {first.session}


def test_a_rewritten_message_of_a_running_turn_is_nobodys(case):
    case.turn(TASK)
    case.begin(TASK, calls("a"), result("a", "done. Now: 12:00"))
    assert case.turn(TASK, calls("a"), result("a", "done."), calls("b"), result("b")).rule != CONTINUED


def test_a_greeting_after_a_system_text_that_all_share_is_new(case):
    case.turn(SYSTEM, TASK)
    assert case.turn(SYSTEM, said("How may I help?"), user("Do it.")).rule == NEW


def test_a_talk_about_a_document_that_others_have_asked_about_is_new(case):
    document = user("A long document.")
    case.turn(SYSTEM, document, user("question"))
    assert case.turn(SYSTEM, document, user("another"), said("a"), user("b")).rule == NEW


def test_questions_about_one_document_are_sessions_of_their_own(case):
    found = [case.turn(SYSTEM, user("A long document."), user(f"question {number}")) for number in range(5)]
    assert len({each.session for each in found}) == 5


# 4, 6: edits and branches


def test_a_last_message_that_is_edited_is_a_branch(case):
    first = case.turn(TASK)
    case.turn(TASK, said("a"), user("b"))
    case.turn(TASK, said("a"), user("b"), said("c"), user("d"))
    branch = case.turn(TASK, said("a"), user("b"), said("c"), user("edited"))
    assert (branch.rule, branch.parent) == (BRANCH, first.session)
    assert (
        case.turn(TASK, said("a"), user("b"), said("c"), user("edited"), said("e"), user("f")).session == branch.session
    )
    assert case.turn(TASK, said("a"), user("b"), said("c"), user("d"), said("e"), user("f")).session == first.session


def test_an_edit_of_a_request_that_came_to_nothing_goes_on(case):
    first = case.turn(TASK)
    case.turn(TASK, said("a"), user("b"))
    lost = case.begin(TASK, said("a"), user("b"), said("c"), user("stopped by hand"))
    case.end(lost, completed=False)
    edited = case.turn(TASK, said("a"), user("b"), said("c"), user("better"))
    assert (edited.rule, edited.session) == (CONTINUED, first.session)


def test_a_talk_that_shares_only_a_first_turn_with_one_that_came_to_nothing_is_new(case):
    """Its own first turn has been forgotten, say. That of a sibling is no reason to join that one."""
    sibling = case.turn(TASK)
    lost = case.begin(TASK, said("a"), user("b"))
    case.end(lost, completed=False)
    found = case.turn(TASK, said("c"), user("d"))
    assert (found.rule, found.parent) == (NEW, None)
    assert found.session != sibling.session


def test_a_first_message_that_is_edited_is_new(case):
    first = case.turn(SYSTEM, TASK)
    found = case.turn(SYSTEM, user("Do it well."))
    assert found.session != first.session
    assert (found.rule, found.parent) == (NEW, None)


# 5: compaction


def test_a_compacted_history_ends_the_old_session_and_starts_a_new_one(case):
    history = [SYSTEM, TASK]
    old = case.turn(*history)
    for number in range(6):
        history += [calls(f"call-{number}"), result(f"call-{number}")]
        case.turn(*history)
    summary = user("Summary of what was done so far.")
    kept = [*history[-2:], calls("next"), result("next")]
    found = case.turn(SYSTEM, summary, *kept)
    assert (found.rule, found.ended) == (COMPACTED, old.session)
    assert found.session != old.session
    assert case.turn(SYSTEM, summary, *kept, said("a"), user("b")).session == found.session


def test_a_system_text_that_changes_with_each_turn_ends_the_session_each_time(case):
    first = case.turn({"role": "system", "content": "It is 12:00."}, TASK)
    second = case.turn({"role": "system", "content": "It is 12:01."}, TASK, said("a"), user("b"))
    assert (second.rule, second.ended) == (COMPACTED, first.session)


def test_the_same_question_under_another_system_text_ends_nobody(case):
    case.turn(SYSTEM, TASK)
    other = {"role": "system", "content": "You are a pirate."}
    assert case.turn(other, TASK).rule == NEW
    assert case.turn(other, TASK, said("a"), user("b")).rule == CONTINUED


def test_a_running_session_is_never_taken_for_compacted(case):
    case.turn(SYSTEM, TASK)
    case.begin(SYSTEM, TASK, said("a"), user("b"))
    found = case.turn(user("Summary."), said("a"), user("b"), said("c"), user("d"))
    assert (found.rule, found.ended) == (NEW, None)


# the Responses API


def test_a_response_is_gone_on_from_by_its_id():
    lineage = Lineage(1 << 24, name="test")
    first = lineage.recognise("key", talk_of({"input": "Do it."}))
    lineage.answered(first.run, completed=True, response_id="resp_1")
    following = {
        "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}],
        "previous_response_id": "resp_1",
    }
    second = lineage.recognise("key", talk_of(following))
    assert (second.session, second.rule) == (first.session, CONTINUED)
    lineage.answered(second.run, completed=False)
    again = lineage.recognise("key", talk_of(following))
    assert again.session == first.session
    lineage.answered(again.run, completed=True, response_id="resp_2")
    branch = lineage.recognise("key", talk_of({"input": "Other.", "previous_response_id": "resp_1"}))
    assert (branch.rule, branch.parent) == (BRANCH, first.session)
    assert lineage.recognise("other", talk_of(following)).rule == NEW


# what goes wrong


def test_an_answer_to_a_run_that_was_forgotten_is_nothing(case):
    small = Case()
    small.lineage = Lineage(5000, name="test")
    first = small.begin(TASK)
    for number in range(100):
        small.turn(user(f"{number}"))
    small.end(first, response_id="resp_1")
    assert small.turn(TASK, said("a"), user("b")).rule == NEW

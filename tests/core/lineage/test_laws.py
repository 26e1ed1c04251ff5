"""What holds whatever agents do: two keys never share a session, memory is bounded, an agent alone is always known."""

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from concur_proxy.core.lineage import BRANCH, CONTINUED, NEW, RULES, Lineage, talk_of
from concur_proxy.core.lineage.runs import Siblings, State
from concur_proxy.core.lineage.table import POINT_BYTES, RUN_BYTES

LIMIT = 30 * (RUN_BYTES + 4 * POINT_BYTES)
NAMESPACES = st.sampled_from(["one", "two", "-"])
WORDS = st.sampled_from(["a", "b", "c"])
FIELDS = ["messages", "prompt", "input", "instructions", "system", "tools", "previous_response_id", "prompt_cache_key"]
PARTS = [
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "tool_call_id",
    "function",
    "id",
    "name",
    "arguments",
    "call_id",
    "image_url",
    "url",
    "output",
]
NAMES = st.sampled_from([*FIELDS, *PARTS])
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])
MESSAGES = st.lists(st.builds(lambda role, content: {"role": role, "content": content}, ROLES, WORDS), max_size=6)


class Traffic(RuleBasedStateMachine):
    """Few words and few keys: everything collides with everything, also the hashes of two keys' talks."""

    def __init__(self):
        super().__init__()
        self.same_hashes = mock.patch("concur_proxy.core.lineage.recogniser.seed_of", return_value=0)
        self.same_hashes.start()
        self.lineage = Lineage(LIMIT, name="test")
        self.open = []
        self.histories = [[]]
        self.responses = []

    def teardown(self):
        self.same_hashes.stop()

    @rule(
        namespace=NAMESPACES,
        start=st.integers(0, 1000),
        cut=st.integers(0, 3),
        more=MESSAGES,
        retry=st.booleans(),
        tools=st.booleans(),
    )
    def turn(self, namespace, start, cut, more, retry, tools):
        known = self.histories[start % len(self.histories)]
        history = [*known[: len(known) - cut], *more]
        self.ask(namespace, {"messages": history, "tools": [{}] if tools else []}, retry=retry)
        self.histories = [*self.histories[-20:], history]

    @rule(namespace=NAMESPACES, start=st.integers(0, 1000), text=WORDS)
    def response(self, namespace, start, text):
        previous = self.responses[start % len(self.responses)] if self.responses else None
        self.ask(namespace, {"input": text, "previous_response_id": previous})

    @rule(namespace=NAMESPACES, text=st.text("ab", max_size=600))
    def prompt(self, namespace, text):
        self.ask(namespace, {"prompt": text})

    def ask(self, namespace, fields, *, retry=False):
        talk = talk_of(fields)
        if talk is None:
            return
        found = self.lineage.recognise(namespace, talk, retry=retry)
        assert found.rule in RULES
        for key in (found.session, found.parent, found.ended):
            assert key is None or key.namespace == namespace
        assert found.session not in (found.parent, found.ended)
        self.open.append(found)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 1000), completed=st.booleans(), has_id=st.booleans())
    def end(self, which, completed, has_id):
        found = self.open.pop(which % len(self.open))
        response_id = f"resp_{found.session.id}_{found.run.turns}" if has_id else None
        self.lineage.answered(found.run, completed=completed, response_id=response_id)
        self.responses += [response_id] if response_id else []

    @invariant()
    def memory_is_bounded(self):
        assert self.lineage.bytes <= LIMIT

    @invariant()
    def the_table_holds_what_its_runs_say_and_nothing_else(self):
        table = self.lineage._table
        runs = list(table._runs.values())
        points = {point for run in runs for point in run.points}
        assert set(table._points) <= points
        assert {id(run) for run in (*table._before.values(), *table._tails.values())} <= {id(run) for run in runs}
        assert table._bytes == sum(RUN_BYTES + POINT_BYTES * len(run.points) for run in runs)
        for run in runs:
            for tip in run.tips:
                there = table._points[tip]
                assert there is run or run in there.standing
        for point, there in table._points.items():
            if isinstance(there, Siblings):
                assert there.standing or there.past
                assert all(point in run.tips for run in there.standing)
                assert set(there.lost) == {run for run in there.standing if run.state is State.LOST}


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(
    st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=4), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_an_agent_alone_is_one_session_whatever_it_says(turns, losses):
    """Each turn adds some messages after the answer; some turns fail once and come again."""
    lineage = Lineage(1 << 24, name="test")
    history, sessions = [], set()
    for number, (words, lost) in enumerate(zip(turns, losses, strict=False)):
        history += [{"role": "user", "content": word} for word in words]
        for completed in (False, True) if lost else (True,):
            found = lineage.recognise("key", talk_of({"messages": history}))
            assert found.rule == (NEW if not sessions else CONTINUED)
            sessions.add(found.session)
            lineage.answered(found.run, completed=completed)
        history.append({"role": "assistant", "content": f"answer {number}"})
    assert len(sessions) == 1


@given(st.lists(st.text(max_size=3), min_size=2, max_size=6), st.data())
def test_an_edit_is_a_branch_of_the_session_that_it_edits(texts, data):
    lineage = Lineage(1 << 24, name="test")
    history, found = [], None
    for number, text in enumerate(texts):
        history.append({"role": "user", "content": text})
        found = lineage.recognise("key", talk_of({"messages": history}))
        lineage.answered(found.run, completed=True)
        history.append({"role": "assistant", "content": f"answer {number}"})
    turn = data.draw(st.integers(2, len(texts))) if len(texts) > 2 else 2
    edited = [*history[: 2 * turn - 2], {"role": "user", "content": "edited"}]
    branch = lineage.recognise("key", talk_of({"messages": edited}))
    if turn == 2:
        assert branch.rule == NEW, "before it there is only the first turn, which siblings share"
    else:
        assert (branch.rule, branch.parent) == (BRANCH, found.session)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=30,
)


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=4), max_size=4))
def test_nothing_that_json_can_hold_is_an_error(bodies):
    lineage = Lineage(1 << 20, name="test")
    for body in bodies:
        talk = talk_of(body)
        if talk is not None:
            found = lineage.recognise("key", talk)
            lineage.answered(found.run, completed=True)
            assert lineage.recognise("key", talk_of(body), retry=True).session == found.session

"""The invariants of ``progress``, by number, over any order of events; a crash may come between any two of them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from concur_proxy.batch.database import SqliteDatabase
from concur_proxy.batch.records import Answer, NewLine, Spent
from tests.batch.stores import OWNER, Stores

RUNNERS = ("one", "two")
LEASE_S = 30.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""What survives a crash of the process is asked here, not what survives one of the machine."""
ENDED = {"completed", "expired", "cancelled", "failed"}


class World(RuleBasedStateMachine):
    """Runners that claim, answer, lose their leases and die; owners that submit and cancel."""

    batches = Bundle("batches")
    claims = Bundle("claims")

    def open(self) -> Stores:
        return Stores(SqliteDatabase(self.where))

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.where = str(Path(self.folder.name, "store.db"))
        self.stores = self.open()
        self.now = 1000.0
        self.sessions: dict[str, list[int | None]] = {}
        self.answers: dict[str, dict[int, Answer]] = {}
        self.closed: dict[str, set[int]] = {}
        """Lines that got no answer, and must not get one any more."""
        self.holds: dict[str, set[str]] = {runner: set() for runner in RUNNERS}
        self.until = dict.fromkeys(RUNNERS, 0.0)

    def teardown(self) -> None:
        self.stores.database.close()
        self.folder.cleanup()

    # owners

    @rule(target=batches, sessions=st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=8))
    def submit(self, sessions: list[int | None]) -> str:
        texts = [json.dumps({"line": number}).encode() + b"\n" for number in range(len(sessions))]
        batch = self.stores.create(self.stores.upload(b"".join(texts), now=self.now), now=self.now)
        lines, place, last = [], 0, {}
        for number, (session, text) in enumerate(zip(sessions, texts, strict=True), 1):
            line = NewLine(number, place, len(text) - 1, f"id {number}")
            if session is not None and session in last:
                last[session].successor, line.is_first = number, False
            if session is not None:
                last[session] = line
            lines.append(line)
            place += len(text)
        self.stores.progress.accept(batch, lines, model="m", now=self.now)
        self.sessions[batch], self.answers[batch], self.closed[batch] = sessions, {}, set()
        return batch

    @rule(batch=batches)
    def cancel(self, batch: str) -> None:
        if self.row(batch)["status"] in {"in_progress", "cancelling", "cancelled"}:
            assert self.stores.batches.cancel(OWNER, batch, now=self.now)["status"] in {"cancelling", "cancelled"}

    # runners

    @rule(runner=st.sampled_from(RUNNERS), later_s=st.sampled_from((0.0, 1.0, LEASE_S + 1)))
    def adopt(self, runner: str, later_s: float) -> None:
        self.now += later_s
        before, rival = set(self.holds[runner]), other(runner)
        held = {row["id"] for row in self.stores.progress.adopt(runner, now=self.now, until=self.now + LEASE_S)}
        unfinished = {batch for batch in self.sessions if self.row(batch)["status"] not in ENDED}
        safe = self.holds[rival] & unfinished if self.now <= self.until[rival] else set()
        assert held == unfinished - safe  # 4
        self.holds[runner], self.until[runner] = held, self.now + LEASE_S
        self.holds[rival] -= held
        for batch in held - before:
            self.stores.progress.reclaim(batch, runner)
            assert 2 not in self.states(batch).values()  # 4

    @rule(target=claims, batch=batches, runner=st.sampled_from(RUNNERS), most=st.integers(1, 4), held=st.booleans())
    def claim(self, batch: str, runner: str, most: int, held: bool) -> tuple[str, list[int]]:
        if held:
            self.adopt(runner, 0.0)
        before = self.states(batch)
        claimed = self.stores.progress.claim(batch, runner, most)
        if batch not in self.holds[runner]:
            assert not claimed  # 4
        numbers = [one.number for one in claimed]
        assert numbers == sorted(numbers)
        for one in claimed:
            assert before[one.number] == 1
            assert json.loads(one.request) == {"line": one.number - 1}
            self.assert_all_before_are_done(batch, one.number)
        return batch, numbers

    def assert_all_before_are_done(self, batch: str, number: int) -> None:
        """Invariant 5."""
        session = self.sessions[batch][number - 1]
        if session is not None:
            earlier = [n for n in range(1, number) if self.sessions[batch][n - 1] == session]
            assert all(self.states(batch)[n] == 3 for n in earlier)

    @rule(claim=consumes(claims), failed=st.booleans(), twice=st.booleans(), tokens=st.integers(0, 9))
    def answer(self, claim: tuple[str, list[int]], failed: bool, twice: bool, tokens: int) -> None:
        batch, numbers = claim
        for attempt in range(1 + twice):
            answers = [Answer(n, failed, b"%d.%d\n" % (n, attempt), Spent(tokens, 0, tokens, 0)) for n in numbers]
            self.stores.progress.answer(batch, answers)
            for answer in answers:
                if answer.number not in self.closed[batch]:
                    self.answers[batch].setdefault(answer.number, answer)  # 1: the first one stays

    @rule(batch=batches, runner=st.sampled_from(RUNNERS), ending=st.sampled_from(("completed", "expired")))
    def finish(self, batch: str, runner: str, ending: str) -> None:
        """Do what a job does once no line is to be played any more."""
        progress = self.stores.progress
        undone = [number for number, state in self.states(batch).items() if state != 3]
        before = self.row(batch)["status"]
        progress.finalize(batch, runner, ending, now=self.now)
        status = self.row(batch)["status"]
        if status == "finalizing" and before == "in_progress":
            assert batch in self.holds[runner]
            assert ending == "expired" or not undone  # nothing is complete that has open lines
        if status in {"finalizing", "cancelling"}:
            while rows := progress.unanswered(batch, 2):
                numbers = [row["number"] for row in rows]
                progress.close_lines(batch, [Answer(n, failed=True, text=b"%d closed\n" % n) for n in numbers])
                self.closed[batch].update(numbers)
            progress.end(batch, runner, now=self.now)
            assert (self.row(batch)["status"] in ENDED) == (batch in self.holds[runner])

    @rule()
    def crash(self) -> None:
        """The process dies; the next one is the only one there is."""
        self.stores.database.close()
        self.stores = self.open()
        self.stores.progress.release_all()
        self.holds = {runner: set() for runner in RUNNERS}

    # what holds at any time

    def row(self, batch: str):
        return self.stores.batches.find(OWNER, batch)

    def states(self, batch: str) -> dict[int, int]:
        with self.stores.database.transaction() as t:
            return {row["number"]: row["state"] for row in t.rows("SELECT * FROM lines WHERE batch = :b", b=batch)}

    @invariant()
    def counts_are_those_of_the_answers(self) -> None:
        """Invariant 2."""
        for batch, answers in getattr(self, "answers", {}).items():
            row = self.row(batch)
            assert row["total"] == len(self.sessions[batch])
            assert row["failed"] == sum(answer.failed for answer in answers.values())
            assert row["completed"] == len(answers) - row["failed"]
            assert row["input_tokens"] == sum(answer.spent.input for answer in answers.values())

    @invariant()
    def files_of_ended_batches_have_each_line_once(self) -> None:
        """Invariants 1 and 3."""
        for batch, answers in getattr(self, "answers", {}).items():
            row = self.row(batch)
            if row["status"] not in ENDED:
                assert row["output_file"] is None
                continue
            assert row["identity"] is None
            output = self.stores.content(row["output_file"])
            errors = self.stores.content(row["error_file"])
            assert output == b"".join(answers[n].text for n in sorted(answers) if not answers[n].failed)
            numbers = [int(line.split()[0].split(b".")[0]) for line in (output + errors).splitlines()]
            assert sorted(numbers) == list(range(1, len(self.sessions[batch]) + 1))


def other(runner: str) -> str:
    return RUNNERS[runner == RUNNERS[0]]


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

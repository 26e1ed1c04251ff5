"""How batches go on, one transaction for each event. Whoever is killed between two of them starts again from there.

States of a line::

    blocked ──▶ ready ──▶ claimed ──▶ done
                  ▲───────────┘ its runner is gone

A line is blocked while an earlier one of its session is not done. Invariants, which property tests cite:

1. A line is answered at most once: what comes later for it changes nothing.
2. ``completed`` and ``failed`` of a batch are the numbers of its lines that were answered so.
3. A batch that has ended has an answer for every line that it had.
4. At most one runner holds a batch, and what it had claimed is ready again when another one takes it.
5. Lines of one session become ready in the order of the file, each when the one before it is done.

A batch:: validating ▶ in_progress ▶ finalizing ▶ completed | expired, or cancelling ▶ cancelled, or failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from concur_proxy.batch import files
from concur_proxy.batch.database import Database, Row, Transaction
from concur_proxy.batch.files import CHUNK_BYTES, UNFINISHED
from concur_proxy.batch.records import Answer, Claim, NewFile, NewLine

BLOCKED, READY, CLAIMED, DONE = 0, 1, 2, 3
KEEP = (
    "UPDATE lines SET state = :done, failed = :failed, answer = :answer "
    "WHERE batch = :batch AND number = :number AND state <> :done"
)


class Progress:
    """What runners do with the batches in a database; all calls block."""

    def __init__(self, database: Database, *, retention_s: int) -> None:
        self._database = database
        self._retention_s = retention_s

    def release_all(self) -> None:
        """Nobody runs any batch: for the only user of a database, as it starts."""
        with self._database.transaction() as t:
            t.run("UPDATE batches SET runner = NULL WHERE runner IS NOT NULL")

    def release(self, runner: str) -> None:
        """Let others have what a runner holds."""
        with self._database.transaction() as t:
            t.run("UPDATE batches SET runner = NULL WHERE runner = :runner", runner=runner)

    def adopt(self, runner: str, *, now: float, until: float) -> list[Row]:
        """Take unfinished batches that nobody holds, renew the lease of all that ``runner`` holds, and return these."""
        with self._database.transaction() as t:
            held = t.rows(
                "UPDATE batches SET runner = :runner, runner_until = :until "
                f"WHERE status IN {UNFINISHED} AND (runner IS NULL OR runner = :runner OR runner_until < :now) "
                "RETURNING *",
                runner=runner,
                until=until,
                now=now,
            )
        return sorted(held, key=lambda row: row["place"])

    def reclaim(self, batch: str, runner: str) -> None:
        """Make ready what was claimed by a runner that is gone (invariant 4)."""
        with self._database.transaction() as t:
            if t.rows("SELECT id FROM batches WHERE id = :batch AND runner = :runner", batch=batch, runner=runner):
                t.run(
                    "UPDATE lines SET state = :ready WHERE batch = :batch AND state = :claimed",
                    batch=batch,
                    ready=READY,
                    claimed=CLAIMED,
                )

    def get(self, batch: str) -> Row:
        with self._database.transaction() as t:
            return _get(t, batch)

    def read(self, file: str, first_byte: int, length: int) -> bytes:
        """Return a part of an uploaded file."""
        with self._database.transaction() as t:
            return _read(t, file, first_byte, length)

    def accept(self, batch: str, lines: Sequence[NewLine], *, model: str | None, now: float) -> None:
        """The input is in order: have its lines played, unless the batch was cancelled meanwhile."""
        with self._database.transaction() as t:
            accepted = t.run(
                "UPDATE batches SET status = 'in_progress', in_progress_at = :now, total = :total, model = :model "
                "WHERE id = :batch AND status = 'validating'",
                batch=batch,
                now=int(now),
                total=len(lines),
                model=model,
            )
            if accepted:
                t.many(
                    "INSERT INTO lines VALUES (:batch, :number, :first_byte, :length, :custom_id, :successor, :state, "
                    "NULL, NULL)",
                    [_line_row(batch, line) for line in lines],
                )

    def reject(self, batch: str, errors: str, *, now: float) -> None:
        """The input is not in order: ``errors`` as JSON."""
        with self._database.transaction() as t:
            t.run(
                "UPDATE batches SET status = 'failed', failed_at = :now, errors = :errors, identity = NULL, "
                "runner = NULL WHERE id = :batch AND status = 'validating'",
                batch=batch,
                now=int(now),
                errors=errors,
            )

    def claim(self, batch: str, runner: str, most: int) -> list[Claim]:
        """Return lines that are ready, and the runner's from now on; none where the batch is not its to play."""
        with self._database.transaction() as t:
            found = t.rows(
                "SELECT input_file FROM batches WHERE id = :batch AND runner = :runner AND status = 'in_progress'",
                batch=batch,
                runner=runner,
            )
            if not found:
                return []
            rows = t.rows(
                "UPDATE lines SET state = :claimed WHERE batch = :batch AND state = :ready AND number IN "
                "(SELECT number FROM lines WHERE batch = :batch AND state = :ready ORDER BY number LIMIT :most) "
                "RETURNING *",
                batch=batch,
                ready=READY,
                claimed=CLAIMED,
                most=most,
            )
            file = found[0]["input_file"]
            return [_claim(t, file, row) for row in sorted(rows, key=lambda row: row["number"])]

    def answer(self, batch: str, answers: Sequence[Answer]) -> None:
        """Keep what lines came to (invariants 1 and 2), and let those go on that waited for them (5)."""
        with self._database.transaction() as t:
            in_order = sorted(answers, key=lambda answer: answer.number)  # two runners must not lock each other out
            fresh = [answer for answer in in_order if _keep(t, batch, answer)]
            t.run(
                "UPDATE batches SET completed = completed + :completed, failed = failed + :failed, "
                "input_tokens = input_tokens + :input, cached_tokens = cached_tokens + :cached, "
                "output_tokens = output_tokens + :output, reasoning_tokens = reasoning_tokens + :reasoning "
                "WHERE id = :batch",
                batch=batch,
                completed=sum(not answer.failed for answer in fresh),
                failed=sum(answer.failed for answer in fresh),
                input=sum(answer.spent.input for answer in fresh),
                cached=sum(answer.spent.cached for answer in fresh),
                output=sum(answer.spent.output for answer in fresh),
                reasoning=sum(answer.spent.reasoning for answer in fresh),
            )

    def finalize(self, batch: str, runner: str, ending: str, *, now: float) -> None:
        """Play no more of it. ``ending``: expired, or completed, for which every line must have been answered."""
        open_lines = f"(SELECT 1 FROM lines WHERE batch = :batch AND state <> {DONE})"
        with self._database.transaction() as t:
            t.run(
                "UPDATE batches SET status = 'finalizing', ending = :ending, finalizing_at = :now "
                "WHERE id = :batch AND runner = :runner AND status = 'in_progress' "
                + (f"AND NOT EXISTS {open_lines}" if ending == "completed" else ""),
                batch=batch,
                runner=runner,
                ending=ending,
                now=int(now),
            )

    def unanswered(self, batch: str, most: int) -> list[Row]:
        """Return lines without an answer, whatever their state."""
        with self._database.transaction() as t:
            return t.rows(
                "SELECT number, custom_id FROM lines WHERE batch = :batch AND state <> :done "
                "ORDER BY number LIMIT :most",
                batch=batch,
                done=DONE,
                most=most,
            )

    def close_lines(self, batch: str, answers: Sequence[Answer]) -> None:
        """Put into the error file why lines were not played; they do not count as failed."""
        with self._database.transaction() as t:
            t.many(KEEP, [_kept(batch, answer) for answer in answers])

    def end(self, batch: str, runner: str, *, now: float) -> None:
        """Make the files, once every line has its answer (invariant 3), and forget whose keys it was played with."""
        with self._database.transaction() as t:
            locked = t.run(
                "UPDATE batches SET identity = NULL WHERE id = :batch AND runner = :runner "
                "AND status IN ('finalizing', 'cancelling')",
                batch=batch,
                runner=runner,
            )
            if not locked:
                return
            row = _get(t, batch)
            t.run(
                f"UPDATE batches SET status = :ending, {row['ending']}_at = :now, output_file = :output, "
                "error_file = :error, runner = NULL WHERE id = :batch",
                batch=batch,
                ending=row["ending"],
                now=int(now),
                output=self._make_file(t, row, failed=False, now=now),
                error=self._make_file(t, row, failed=True, now=now),
            )

    def _make_file(self, t: Transaction, batch: Row, *, failed: bool, now: float) -> str | None:
        """Return the id of a file with the answers of one kind; None where there are none."""
        statement = "SELECT COUNT(*) AS lines, SUM(LENGTH(answer)) AS size FROM lines WHERE batch = :b AND failed = :f"
        found = t.rows(statement, b=batch["id"], f=int(failed))[0]
        if not found["lines"]:
            return None
        keep_s = min(batch["output_expires_s"] or self._retention_s, self._retention_s)
        new = NewFile(
            owner=batch["owner"],
            purpose="batch_output",
            filename=f"{batch['id']}_{'error' if failed else 'output'}.jsonl",
            size=int(found["size"]),
            expires_at=int(now) + keep_s,
            batch=batch["id"],
            failed=failed,
        )
        return files.insert(t, new, now=now)


def _get(t: Transaction, batch: str) -> Row:
    return t.rows("SELECT * FROM batches WHERE id = :batch", batch=batch)[0]


def _line_row(batch: str, line: NewLine) -> dict[str, Any]:
    return {
        "batch": batch,
        "number": line.number,
        "first_byte": line.first_byte,
        "length": line.length,
        "custom_id": line.custom_id,
        "successor": line.successor,
        "state": READY if line.is_first else BLOCKED,
    }


def _claim(t: Transaction, file: str, row: Row) -> Claim:
    return Claim(row["number"], row["custom_id"], _read(t, file, row["first_byte"], row["length"]))


def _read(t: Transaction, file: str, first_byte: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        number, start = divmod(first_byte, CHUNK_BYTES)
        size = min(length, CHUNK_BYTES - start)
        statement = "SELECT SUBSTR(data, :start, :size) AS data FROM chunks WHERE file = :file AND number = :number"
        rows = t.rows(statement, file=file, number=number, start=start + 1, size=size)
        if not rows:
            break
        parts.append(bytes(rows[0]["data"]))
        first_byte, length = first_byte + size, length - size
    return b"".join(parts)


def _kept(batch: str, answer: Answer) -> dict[str, Any]:
    told = {"failed": int(answer.failed), "answer": answer.text}
    return {"batch": batch, "number": answer.number, "done": DONE, **told}


def _keep(t: Transaction, batch: str, answer: Answer) -> bool:
    """Write an answer where there is none; tell whether that was so."""
    kept = t.run(KEEP, **_kept(batch, answer))
    if kept:
        t.run(
            "UPDATE lines SET state = :ready WHERE batch = :batch AND state = :blocked AND number = "
            "(SELECT successor FROM lines WHERE batch = :batch AND number = :number)",
            batch=batch,
            number=answer.number,
            ready=READY,
            blocked=BLOCKED,
        )
    return kept > 0

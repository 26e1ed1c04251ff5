"""What owners do with their batches."""

from __future__ import annotations

import secrets

from concur_proxy.batch import files
from concur_proxy.batch.database import Database, Row, Transaction
from concur_proxy.batch.files import UNFINISHED, Page
from concur_proxy.batch.records import NewBatch
from concur_proxy.errors import BatchNotFoundError, RequestError


class Batches:
    """The batches in a database; all calls block."""

    def __init__(self, database: Database, *, retention_s: int) -> None:
        self._database = database
        self._retention_s = retention_s

    def create(self, new: NewBatch, *, now: float) -> Row:
        """Add a batch that is to be validated. FileNotStoredError where its input is not there."""
        batch = f"batch_{secrets.token_hex(12)}"
        with self._database.transaction() as t:
            file = files.find(t, new.owner, new.input_file)
            if file["purpose"] != "batch":
                raise RequestError(
                    "The input file must have been uploaded with purpose 'batch'.", param="input_file_id"
                )
            t.run(
                "INSERT INTO batches (id, owner, place, status, endpoint, input_file, completion_window, metadata, "
                "output_expires_s, identity, created_at, expires_at, total, completed, failed, input_tokens, "
                "cached_tokens, output_tokens, reasoning_tokens) VALUES (:id, :owner, :place, 'validating', :endpoint, "
                ":input_file, :window, :metadata, :keep_s, :identity, :now, :expires_at, 0, 0, 0, 0, 0, 0, 0)",
                id=batch,
                owner=new.owner,
                place=int(now * 1e6),
                endpoint=new.endpoint,
                input_file=new.input_file,
                window=new.completion_window,
                metadata=new.metadata,
                keep_s=new.output_expires_s,
                identity=new.identity,
                now=int(now),
                expires_at=int(now) + new.window_s,
            )
            return t.rows("SELECT * FROM batches WHERE id = :batch", batch=batch)[0]

    def find(self, owner: str, batch: str) -> Row:
        """Return a batch; BatchNotFoundError where the owner has none of this id."""
        with self._database.transaction() as t:
            return _find(t, owner, batch)

    def listing(self, owner: str, page: Page) -> list[Row]:
        """Return one batch more than wanted, if there are more. BatchNotFoundError where ``after`` is unknown."""
        with self._database.transaction() as t:
            after = _find(t, owner, page.after) if page.after is not None else None
            return files.listed(t, "batches WHERE owner = :owner", page, after, owner=owner)

    def cancel(self, owner: str, batch: str, *, now: float) -> Row:
        """Begin to cancel; nothing changes for one that is being cancelled. RequestError where it is too late."""
        with self._database.transaction() as t:
            _find(t, owner, batch)
            t.run(
                "UPDATE batches SET status = 'cancelling', ending = 'cancelled', cancelling_at = :now "
                "WHERE id = :batch AND status IN ('validating', 'in_progress')",
                batch=batch,
                now=int(now),
            )
            found = t.rows("SELECT * FROM batches WHERE id = :batch", batch=batch)[0]
        if found["status"] not in {"cancelling", "cancelled"}:
            raise RequestError(f"A batch that is {found['status']} cannot be cancelled.", param="batch_id")
        return found

    def sweep(self, *, now: float) -> None:
        """Forget batches that ended long ago; their files have gone before."""
        with self._database.transaction() as t:
            t.run(
                f"DELETE FROM batches WHERE created_at <= :old AND status NOT IN {UNFINISHED} AND id NOT IN "
                "(SELECT batch FROM files WHERE batch IS NOT NULL)",
                old=int(now) - self._retention_s,
            )


def _find(t: Transaction, owner: str, batch: str) -> Row:
    rows = t.rows("SELECT * FROM batches WHERE id = :batch AND owner = :owner", batch=batch, owner=owner)
    if not rows:
        raise BatchNotFoundError(f"There is no batch {batch!r} under this API key.", param="batch_id")
    return rows[0]

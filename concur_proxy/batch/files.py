"""Files in the store: uploads in chunks, and answers of batches, which are read from the batch's lines."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from concur_proxy.batch.database import Database, Row, Transaction
from concur_proxy.batch.records import NewFile
from concur_proxy.errors import FileNotStoredError, RequestError

CHUNK_BYTES = 256 << 10
UPLOAD_S = 86_400
"""An upload that has not ended after this never will."""
PAGE = 64
"""Answers that are read at once."""
UNFINISHED = "('validating', 'in_progress', 'finalizing', 'cancelling')"


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list a client wants, newest first unless ``ascending``. ``after``: the last id that it has."""

    limit: int
    after: str | None = None
    ascending: bool = False


class Files:
    """``retention_s``: how long a file is kept whose owner says nothing."""

    def __init__(self, database: Database, *, retention_s: int) -> None:
        self._database = database
        self._retention_s = retention_s

    # upload

    def begin(self, owner: str, *, now: float, size: int = 0) -> str:
        """Make room for an upload and return the file's id; it is listed nowhere until it is whole.

        It counts with ``size`` until then, so that uploads at the same time do not take more than there is.
        """
        with self._database.transaction() as t:
            return insert(t, NewFile(owner, "", "", size, int(now) + UPLOAD_S, whole=False), now=now)

    def add(self, file: str, number: int, data: bytes) -> None:
        """Keep one chunk; all but the last one have ``CHUNK_BYTES``."""
        with self._database.transaction() as t:
            t.run("INSERT INTO chunks VALUES (:file, :number, :data)", file=file, number=number, data=data)

    def complete(self, file: str, *, purpose: str, filename: str, size: int, keep_s: int | None, now: float) -> Row:
        """The upload is whole."""
        with self._database.transaction() as t:
            t.run(
                "UPDATE files SET purpose = :purpose, filename = :filename, size = :size, expires_at = :expires_at, "
                "whole = 1 WHERE id = :file",
                file=file,
                purpose=purpose,
                filename=filename,
                size=size,
                expires_at=int(now) + min(keep_s or self._retention_s, self._retention_s),
            )
            return t.rows("SELECT * FROM files WHERE id = :file", file=file)[0]

    def discard(self, file: str) -> None:
        """The upload came to nothing."""
        with self._database.transaction() as t:
            delete(t, file)

    def discard_unfinished(self) -> None:
        """Nobody uploads anything: for the only user of a database, as it starts."""
        with self._database.transaction() as t:
            for row in t.rows("SELECT id FROM files WHERE whole = 0"):
                delete(t, row["id"])

    def used_bytes(self) -> int:
        """Return what all files take, and what was promised to those that are uploaded now."""
        with self._database.transaction() as t:
            return int(t.rows("SELECT COALESCE(SUM(size), 0) AS size FROM files")[0]["size"])

    # what owners see

    def find(self, owner: str, file: str) -> Row:
        """Return a file; FileNotStoredError where the owner has none of this id."""
        with self._database.transaction() as t:
            return find(t, owner, file)

    def listing(self, owner: str, page: Page, *, purpose: str | None = None) -> list[Row]:
        """Return one file more than wanted, if there are more. FileNotStoredError where ``after`` is unknown."""
        with self._database.transaction() as t:
            after = find(t, owner, page.after) if page.after is not None else None
            chosen = "AND purpose = :purpose" if purpose is not None else ""
            values = {"purpose": purpose} if purpose is not None else {}
            return listed(t, f"files WHERE owner = :owner AND whole = 1 {chosen}", page, after, owner=owner, **values)

    def delete(self, owner: str, file: str) -> None:
        """Delete a file; RequestError where a batch still needs it."""
        with self._database.transaction() as t:
            find(t, owner, file)
            users = t.rows(f"SELECT id FROM batches WHERE input_file = :file AND status IN {UNFINISHED}", file=file)
            if users:
                raise RequestError(f"The batch {users[0]['id']} still needs {file}: cancel it first.", param="file_id")
            delete(t, file)

    # content

    def pieces(self, file: Row) -> Iterator[bytes]:
        """Yield the content. Each step is a transaction of its own: callers take their time."""
        yield from self._answers(file) if file["batch"] is not None else self._chunks(file["id"])

    def _chunks(self, file: str) -> Iterator[bytes]:
        number = 0
        while data := self._chunk(file, number):
            yield data
            number += 1

    def _chunk(self, file: str, number: int) -> bytes:
        statement = "SELECT data FROM chunks WHERE file = :file AND number = :number"
        with self._database.transaction() as t:
            rows = t.rows(statement, file=file, number=number)
        return bytes(rows[0]["data"]) if rows else b""

    def _answers(self, file: Row) -> Iterator[bytes]:
        after = 0
        while rows := self._answers_after(file, after):
            yield b"".join(bytes(row["answer"]) for row in rows)
            after = rows[-1]["number"]

    def _answers_after(self, file: Row, number: int) -> list[Row]:
        with self._database.transaction() as t:
            return t.rows(
                "SELECT number, answer FROM lines WHERE batch = :batch AND number > :number AND failed = :failed "
                "ORDER BY number LIMIT :most",
                batch=file["batch"],
                number=number,
                failed=file["failed"],
                most=PAGE,
            )

    def sweep(self, *, now: float) -> int:
        """Delete what has expired and no batch needs; return how many files that were."""
        with self._database.transaction() as t:
            expired = t.rows(
                "SELECT id FROM files WHERE expires_at <= :now AND id NOT IN "
                f"(SELECT input_file FROM batches WHERE status IN {UNFINISHED}) LIMIT 100",
                now=int(now),
            )
            for row in expired:
                delete(t, row["id"])
        return len(expired)


def insert(t: Transaction, new: NewFile, *, now: float) -> str:
    """Add a file and return its id."""
    file = f"file-{secrets.token_hex(12)}"
    t.run(
        "INSERT INTO files VALUES (:id, :owner, :purpose, :filename, :size, :place, :created_at, :expires_at, :whole, "
        ":batch, :failed)",
        id=file,
        owner=new.owner,
        purpose=new.purpose,
        filename=new.filename,
        size=new.size,
        place=int(now * 1e6),
        created_at=int(now),
        expires_at=new.expires_at,
        whole=int(new.whole),
        batch=new.batch,
        failed=int(new.failed),
    )
    return file


def find(t: Transaction, owner: str, file: str) -> Row:
    rows = t.rows("SELECT * FROM files WHERE id = :file AND owner = :owner AND whole = 1", file=file, owner=owner)
    if not rows:
        raise FileNotStoredError(f"There is no file {file!r} under this API key.", param="file_id")
    return rows[0]


def delete(t: Transaction, file: str) -> None:
    for row in t.rows("SELECT batch, failed FROM files WHERE id = :file AND batch IS NOT NULL", file=file):
        t.run("DELETE FROM lines WHERE batch = :batch AND failed = :failed", **row)
    t.run("DELETE FROM chunks WHERE file = :file", file=file)
    t.run("DELETE FROM files WHERE id = :file", file=file)


def listed(t: Transaction, chosen: str, page: Page, after: Row | None, **values: Any) -> list[Row]:
    """Return a page of a table's rows in the order of their places. ``chosen``: the table and its conditions."""
    way, order = (">", "ASC") if page.ascending else ("<", "DESC")
    beyond = f"AND (place {way} :place OR (place = :place AND id {way} :id))" if after is not None else ""
    known = {"place": after["place"], "id": after["id"]} if after is not None else {}
    statement = f"SELECT * FROM {chosen} {beyond} ORDER BY place {order}, id {order} LIMIT :most"
    return t.rows(statement, most=page.limit + 1, **known, **values)

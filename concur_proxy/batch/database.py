"""A database in as many words as the store needs, and SQLite behind them.

Statements are plain SQL that SQLite (3.35 and later) and PostgreSQL both understand, with ``:name`` for values. All
calls block, and come from one thread at a time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from concur_proxy.errors import ConfigError, StoreUnavailableError

Row = Mapping[str, Any]


class Transaction(Protocol):
    """What happens within one becomes true together, or not at all."""

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement and return how many rows it changed."""
        ...

    def many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each of ``values``."""
        ...


class Database(Protocol):
    exclusive: bool
    """Nobody else can use it while we do."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end of the block, roll back where it raises. StoreUnavailableError where that fails."""
        ...

    def close(self) -> None: ...


PATIENCE_S = 1.0
"""For another process that is about to close a file, or gives up on it as we begin at the same time."""


class SqliteDatabase:
    """One file, for one process: a second one is refused, a killed one leaves it as after its last transaction."""

    exclusive = True

    def __init__(self, path: str) -> None:
        """ConfigError where the file cannot be used."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # it holds prompts, and keys of unfinished batches
            self._connection = _opened(path)
        except (OSError, sqlite3.Error) as error:
            locked = "locked" in str(error)
            remedy = "another process uses it" if locked else getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"batch.store: cannot use the file {path}: {remedy}") from None
        self._connection.row_factory = _named

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield _SqliteTransaction(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"The store of batches cannot be used: {error}.", retry_after_s=5.0) from error

    def close(self) -> None:
        self._connection.close()


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, **values: Any) -> list[Row]:
        return self._connection.execute(statement, values).fetchall()

    def run(self, statement: str, **values: Any) -> int:
        return self._connection.execute(statement, values).rowcount

    def many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> None:
        self._connection.executemany(statement, values)


def _opened(path: str) -> sqlite3.Connection:
    """Return a connection that holds the lock of its file; where it cannot, it holds nothing that others wait for."""
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock that is kept from now on
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def open_database(where: str) -> Database:
    """Open what ``batch.store`` names: a URL of a server, or a file. ConfigError where that cannot be used."""
    if "://" not in where:
        return SqliteDatabase(where)
    try:
        from concur_proxy.batch.server_database import ServerDatabase  # noqa: PLC0415 - SQLAlchemy is in an extra
    except ImportError as error:
        raise ConfigError(
            f"batch.store: a database server needs more packages ({error.name} is missing): "
            "pip install 'concur-proxy[postgres]'"
        ) from None
    return ServerDatabase(where)

"""PostgreSQL behind the store, by its URL through SQLAlchemy; several proxies may share it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from concur_proxy.batch.database import Row, Transaction
from concur_proxy.errors import ConfigError, StoreUnavailableError

DRIVER = "postgresql+psycopg"
CONNECT_S = 5
"""For a connection, and the server's first words on it."""
SILENCE_S = 20
"""After which a server that does not even acknowledge is gone: the network may drop it without a word."""


class ServerDatabase:
    exclusive = False

    def __init__(self, url: str) -> None:
        """ConfigError where the URL is not one of PostgreSQL. Nothing is connected yet."""
        try:
            parsed = sqlalchemy.make_url(url)
            if parsed.drivername in {"postgres", "postgresql"}:
                parsed = parsed.set(drivername=DRIVER)
            if parsed.get_backend_name() != "postgresql":
                raise ConfigError(f"batch.store: {parsed.get_backend_name()} is not supported: give postgresql://...")
            patience = {
                "connect_timeout": CONNECT_S,
                "keepalives_idle": SILENCE_S // 2,
                "keepalives_interval": SILENCE_S // 8,
                "keepalives_count": 4,
                "tcp_user_timeout": SILENCE_S * 1000,
            }
            patience = {name: value for name, value in patience.items() if name not in parsed.query}
            self._engine = sqlalchemy.create_engine(
                parsed, pool_pre_ping=True, pool_size=1, max_overflow=1, connect_args=patience
            )
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(f"batch.store: this URL cannot be used: {error}") from None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        try:
            with self._engine.begin() as connection:
                yield _ServerTransaction(connection)
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise StoreUnavailableError(f"The store of batches cannot be used: {reason}", retry_after_s=5.0) from error

    def close(self) -> None:
        self._engine.dispose()


class _ServerTransaction:
    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, **values: Any) -> list[Row]:
        return [dict(row) for row in self._connection.execute(sqlalchemy.text(statement), _storable(values)).mappings()]

    def run(self, statement: str, **values: Any) -> int:
        return self._connection.execute(sqlalchemy.text(statement), _storable(values)).rowcount

    def many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._connection.execute(sqlalchemy.text(statement), [_storable(each) for each in values])


def _storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NUL characters, which PostgreSQL refuses in a text: nothing that is looked for has one, then."""
    return {name: value.replace("\0", "\ufffd") if isinstance(value, str) else value for name, value in values.items()}

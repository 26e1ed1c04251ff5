"""The tables. Where a column's type has no name that both databases know, PostgreSQL's is taken: SQLite takes any."""

from __future__ import annotations

import secrets

from concur_proxy.batch.database import Database
from concur_proxy.errors import ConfigError, StoreUnavailableError

VERSION = "1"

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS files (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, filename TEXT NOT NULL, size BIGINT NOT NULL,
        place BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
        whole INTEGER NOT NULL, batch TEXT, failed INTEGER
    )""",
    "CREATE INDEX IF NOT EXISTS files_by_owner ON files (owner, place)",
    """CREATE TABLE IF NOT EXISTS chunks (
        file TEXT NOT NULL, number INTEGER NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (file, number)
    )""",
    """CREATE TABLE IF NOT EXISTS batches (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, place BIGINT NOT NULL, status TEXT NOT NULL, ending TEXT,
        endpoint TEXT NOT NULL, input_file TEXT NOT NULL, completion_window TEXT NOT NULL, metadata TEXT,
        output_expires_s BIGINT, identity TEXT, model TEXT, errors TEXT, output_file TEXT, error_file TEXT,
        created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, in_progress_at BIGINT, finalizing_at BIGINT,
        completed_at BIGINT, failed_at BIGINT, expired_at BIGINT, cancelling_at BIGINT, cancelled_at BIGINT,
        total BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL,
        input_tokens BIGINT NOT NULL, cached_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL,
        runner TEXT, runner_until DOUBLE PRECISION
    )""",
    "CREATE INDEX IF NOT EXISTS batches_by_owner ON batches (owner, place)",
    "CREATE INDEX IF NOT EXISTS batches_by_status ON batches (status)",
    """CREATE TABLE IF NOT EXISTS lines (
        batch TEXT NOT NULL, number BIGINT NOT NULL, first_byte BIGINT NOT NULL, length BIGINT NOT NULL,
        custom_id TEXT NOT NULL, successor BIGINT, state INTEGER NOT NULL, failed INTEGER, answer BYTEA,
        PRIMARY KEY (batch, number)
    )""",
    "CREATE INDEX IF NOT EXISTS lines_by_state ON lines (batch, state, number)",
)


def prepare(database: Database) -> bytes:
    """Make the tables where they are not there; return the store's secret. ConfigError for those of another version."""
    try:
        return _prepare(database)
    except StoreUnavailableError:  # PostgreSQL, where two proxies make the tables at the same moment
        return _prepare(database)


def _prepare(database: Database) -> bytes:
    with database.transaction() as t:
        for statement in TABLES:
            t.run(statement)
        for name, value in (("version", VERSION), ("secret", secrets.token_hex(32))):
            t.run("INSERT INTO meta VALUES (:name, :value) ON CONFLICT (name) DO NOTHING", name=name, value=value)
        meta = {row["name"]: row["value"] for row in t.rows("SELECT name, value FROM meta")}
    if meta["version"] != VERSION:
        raise ConfigError(f"batch.store: it is of version {meta['version']}, and this program uses {VERSION}")
    return bytes.fromhex(meta["secret"])

"""Files in the store: uploads, pages, what is deleted when; and the store's own file."""

from __future__ import annotations

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concur_proxy.batch import database, schema
from concur_proxy.batch.database import SqliteDatabase
from concur_proxy.batch.files import CHUNK_BYTES, UPLOAD_S, Page
from concur_proxy.batch.records import Answer, NewLine
from concur_proxy.errors import BatchNotFoundError, ConfigError, FileNotStoredError, RequestError, StoreUnavailableError
from tests.batch.stores import OWNER, RETENTION_S, Stores, sqlite

HOUR_S = 3600


@pytest.fixture
def stores(tmp_path: Path):
    with sqlite(tmp_path / "store.db") as opened:
        yield opened


def finished(stores: Stores, answers: list[Answer], *, now: float = 1000.0) -> str:
    """A batch with these answers that has ended."""
    batch = stores.create(stores.upload(b"x", now=now), now=now)
    stores.progress.adopt("r", now=now, until=now + 30)
    lines = [NewLine(answer.number, 0, 1, str(answer.number)) for answer in answers]
    stores.progress.accept(batch, lines, model=None, now=now)
    stores.progress.answer(batch, answers)
    stores.progress.finalize(batch, "r", "completed", now=now)
    stores.progress.end(batch, "r", now=now)
    return batch


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(size=st.integers(0, 3 * CHUNK_BYTES), parts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=5))
def test_any_part_of_a_file_can_be_read(size: int, parts: list[tuple[float, float]], shared: Stores) -> None:
    data = os.urandom(size)
    file = shared.upload(data)
    assert shared.content(file) == data
    for first, length in parts:
        start, wanted = int(first * size), int(length * size)
        assert shared.progress.read(file, start, wanted) == data[start : start + wanted]
    shared.files.delete(OWNER, file)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with sqlite(tmp_path_factory.mktemp("store") / "store.db") as opened:
        yield opened


def test_an_upload_is_seen_when_it_is_whole(stores: Stores) -> None:
    file = stores.files.begin(OWNER, now=1000)
    stores.files.add(file, 0, b"part")
    for ask in (stores.files.find, stores.files.delete):
        with pytest.raises(FileNotStoredError):
            ask(OWNER, file)
    assert stores.files.listing(OWNER, Page(10)) == []
    stores.files.complete(file, purpose="batch", filename="f", size=4, keep_s=None, now=1000)
    assert stores.files.find(OWNER, file)["expires_at"] == 1000 + RETENTION_S
    assert stores.content(file) == b"part"


def test_an_upload_that_never_ends_is_deleted(stores: Stores) -> None:
    file = stores.files.begin(OWNER, now=1000)
    stores.files.add(file, 0, b"part")
    assert stores.files.sweep(now=1000 + UPLOAD_S - 1) == 0
    assert stores.files.sweep(now=1000 + UPLOAD_S) == 1
    assert stores.progress.read(file, 0, 4) == b""


def test_files_of_one_moment_come_in_one_order(stores: Stores) -> None:
    files = {stores.upload(b"x", now=1000.0) for _ in range(7)}
    seen: list[str] = []
    while rows := stores.files.listing(OWNER, Page(2, seen[-1] if seen else None))[:2]:
        seen += [row["id"] for row in rows]
    assert len(seen) == 7
    assert set(seen) == files
    ascending = stores.files.listing(OWNER, Page(10, ascending=True))
    assert [row["id"] for row in ascending] == seen[::-1]


def test_what_a_batch_needs_stays_until_it_has_ended(stores: Stores) -> None:
    file = stores.upload(b"x", now=1000.0, keep_s=HOUR_S)
    batch = stores.create(file, now=1000.0)
    with pytest.raises(RequestError, match=batch):
        stores.files.delete(OWNER, file)
    assert stores.files.sweep(now=1000 + 2 * HOUR_S) == 0
    stores.progress.reject(batch, "[]", now=1001)
    assert stores.files.sweep(now=1000 + 2 * HOUR_S) == 1


def test_answers_are_there_until_their_file_is_deleted(stores: Stores) -> None:
    answers = [Answer(n, failed=n % 3 == 0, text=b"%d\n" % n) for n in range(1, 200)]
    row = stores.batches.find(OWNER, finished(stores, answers))
    assert stores.content(row["output_file"]) == b"".join(one.text for one in answers if not one.failed)
    assert stores.files.find(OWNER, row["error_file"])["size"] == len(stores.content(row["error_file"]))
    stores.files.delete(OWNER, row["output_file"])
    with pytest.raises(FileNotStoredError):
        stores.content(row["output_file"])
    assert stores.content(row["error_file"]) == b"".join(one.text for one in answers if one.failed)


def test_batches_go_after_their_files(stores: Stores) -> None:
    batch = finished(stores, [Answer(1, failed=False, text=b"a\n")])
    stores.batches.sweep(now=1000 + RETENTION_S)
    assert stores.batches.find(OWNER, batch)
    assert stores.files.sweep(now=1000 + RETENTION_S) == 2
    stores.batches.sweep(now=1000 + RETENTION_S - 1)
    assert stores.batches.find(OWNER, batch)
    stores.batches.sweep(now=1000 + RETENTION_S)
    with pytest.raises(BatchNotFoundError):
        stores.batches.find(OWNER, batch)
    with stores.database.transaction() as t:
        for table in ("files", "chunks", "lines", "batches"):
            assert t.rows(f"SELECT * FROM {table}") == []


def test_the_file_is_its_owners_alone_and_one_process_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="another process uses it"):
            SqliteDatabase(str(path))
    with sqlite(path) as again, again.database.transaction() as t:
        assert t.rows("SELECT value FROM meta WHERE name = 'version'") == [{"value": schema.VERSION}]


def test_a_process_that_is_about_to_close_the_file_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    """Nor do two that begin at the same time give up for each other."""
    monkeypatch.setattr(database, "PATIENCE_S", 60.0)
    path, begins = str(tmp_path / "store.db"), Event()

    def second() -> SqliteDatabase:
        begins.set()
        return SqliteDatabase(path)

    with ThreadPoolExecutor(1) as thread:
        first = SqliteDatabase(path)
        waits = thread.submit(second)
        begins.wait()
        first.close()
        waits.result().close()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    other = tmp_path / "text"
    other.write_text("something else, long enough to be looked at by anybody who opens a database " * 20)
    for path in (tmp_path / "none" / "store.db", tmp_path, other):
        with pytest.raises(ConfigError, match=str(path)):
            SqliteDatabase(str(path))


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    with sqlite(tmp_path / "store.db") as stores:
        with stores.database.transaction() as t:
            t.run("UPDATE meta SET value = '0' WHERE name = 'version'")
        with pytest.raises(ConfigError, match="version 0"):
            schema.prepare(stores.database)


def test_what_fails_in_a_transaction_leaves_nothing_of_it(stores: Stores) -> None:
    with pytest.raises(StoreUnavailableError), stores.database.transaction() as t:
        t.run("INSERT INTO meta VALUES ('a', 'b')")
        t.run("INSERT INTO nothing VALUES (1)")
    with pytest.raises(ValueError, match="ours"), stores.database.transaction() as t:
        t.run("INSERT INTO meta VALUES ('a', 'b')")
        raise ValueError("ours")
    with stores.database.transaction() as t:
        assert t.rows("SELECT * FROM meta WHERE name = 'a'") == []


def test_the_secret_outlives_a_restart(tmp_path: Path) -> None:
    with sqlite(tmp_path / "a.db") as one:
        first = one.secret
    with sqlite(tmp_path / "a.db") as again, sqlite(tmp_path / "b.db") as other:
        assert first == again.secret != other.secret
    assert sqlite3.sqlite_version_info >= (3, 35)

"""The store in PostgreSQL: a real server, two proxies that share it, and one of them killed."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from concur_proxy.batch import runner, server_database
from concur_proxy.batch.database import open_database
from concur_proxy.batch.files import Page
from concur_proxy.batch.records import Answer, NewLine
from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.errors import BatchNotFoundError, ConfigError, FileNotStoredError, StoreUnavailableError
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.stores import OWNER, Stores, postgres_programs, postgres_server
from tests.batch.test_client import SlowEngine, chat, client_of, content, submit, wait
from tests.clients.stack import ended

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(
        postgres_programs() is None, reason="PostgreSQL is not installed here; install it with: .ci/services"
    ),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server() as where:
        yield where


@pytest.fixture
def stores(url: str) -> Iterator[Stores]:
    database = open_database(url)
    try:
        yield Stores(database)
    finally:
        database.close()


def test_a_batch_from_its_file_to_its_answers(stores: Stores) -> None:
    data = bytes(range(256)) * 3000
    file = stores.upload(data)
    assert stores.content(file) == data
    lines = [NewLine(1, 10, 300_000, "a", successor=2), NewLine(2, 5, 7, "b", is_first=False), NewLine(3, 0, 1, "c")]
    batch = stores.create(file)
    progress = stores.progress
    (held,) = progress.adopt("one", now=1000, until=1030)
    assert held["id"] == batch
    progress.accept(batch, lines, model="m", now=1001)
    claims = progress.claim(batch, "one", 10)
    assert [(claim.number, claim.request) for claim in claims] == [(1, data[10:300_010]), (3, data[:1])]
    progress.answer(batch, [Answer(1, failed=False, text=b"\x00ok\n"), Answer(3, failed=True, text=b"no\n")])
    progress.answer(batch, [Answer(1, failed=True, text=b"twice\n")])
    assert [claim.number for claim in progress.claim(batch, "one", 10)] == [2]
    progress.finalize(batch, "one", "completed", now=1002)
    assert progress.get(batch)["status"] == "in_progress"
    progress.answer(batch, [Answer(2, failed=False, text=b"late\n")])
    progress.finalize(batch, "one", "completed", now=1003)
    progress.end(batch, "one", now=1004)
    row = stores.batches.find(OWNER, batch)
    assert (row["status"], row["total"], row["completed"], row["failed"]) == ("completed", 3, 2, 1)
    assert (row["identity"], row["runner"]) == (None, None)
    assert stores.content(row["output_file"]) == b"\x00ok\nlate\n"
    assert stores.content(row["error_file"]) == b"no\n"
    stores.files.delete(OWNER, row["output_file"])
    stores.files.sweep(now=1e10)
    stores.batches.sweep(now=1e10)
    assert stores.files.used_bytes() == 0


def test_one_batch_has_one_runner(stores: Stores, url: str) -> None:
    batch = stores.create(stores.upload(b"x"))
    other = Stores(open_database(url))
    assert other.secret == stores.secret
    assert [row["id"] for row in stores.progress.adopt("one", now=1000, until=1030)] == [batch]
    assert other.progress.adopt("two", now=1029, until=1059) == []
    stores.progress.accept(batch, [NewLine(1, 0, 1, "a")], model=None, now=1000)
    assert other.progress.claim(batch, "two", 1) == []
    assert [claim.number for claim in stores.progress.claim(batch, "one", 1)] == [1]
    assert [row["id"] for row in other.progress.adopt("two", now=1031, until=1061)] == [batch]
    other.progress.reclaim(batch, "two")
    assert [claim.number for claim in other.progress.claim(batch, "two", 1)] == [1]
    other.progress.answer(batch, [Answer(1, failed=False, text=b"a\n")])
    stores.progress.answer(batch, [Answer(1, failed=False, text=b"b\n")])
    stores.progress.finalize(batch, "one", "completed", now=1031)
    other.progress.finalize(batch, "two", "completed", now=1031)
    stores.progress.end(batch, "one", now=1032)
    other.progress.end(batch, "two", now=1032)
    assert stores.content(stores.batches.find(OWNER, batch)["output_file"]) == b"a\n"
    other.database.close()


def test_proxies_that_start_at_once_find_one_store(url: str) -> None:
    maker = psycopg.connect(url, autocommit=True)
    for number in range(5):
        maker.execute(f"CREATE DATABASE fresh{number}")
        where = url.rsplit("/", 1)[0] + f"/fresh{number}"
        with ThreadPoolExecutor(4) as threads:
            opened = list(threads.map(lambda _: Stores(open_database(where)), range(4)))  # noqa: B023 - done at once
        assert len({stores.secret for stores in opened}) == 1
        for stores in opened:
            stores.database.close()
    maker.close()


def test_two_that_both_believe_to_hold_a_batch_claim_and_answer_each_line_once(stores: Stores, url: str) -> None:
    """A runner whose lease ends while it works: its claims and answers meet those of the next one."""
    batch, count = stores.create(stores.upload(b"x")), 200
    stores.progress.adopt("one", now=1000, until=1030)
    lines = [NewLine(number, 0, 1, str(number)) for number in range(1, count + 1)]
    stores.progress.accept(batch, lines, model=None, now=1000)

    def work(name: str) -> int:
        own, kept = Stores(open_database(url)), 0
        for _ in range(count):
            for claim in own.progress.claim(batch, "one", 7):
                own.progress.answer(batch, [Answer(claim.number, failed=False, text=name.encode() + b"\n")])
                kept += 1
        own.database.close()
        return kept

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, "abcd")) == count
    assert stores.progress.get(batch)["completed"] == count
    stores.progress.finalize(batch, "one", "completed", now=1001)
    stores.progress.end(batch, "one", now=1002)


def test_characters_that_the_server_does_not_keep_are_nobodys_names(stores: Stores) -> None:
    for ask in (stores.files.find, stores.files.delete, stores.batches.find):
        with pytest.raises((FileNotStoredError, BatchNotFoundError)):
            ask(OWNER, "a\0b")
    assert stores.files.listing(OWNER, Page(10), purpose="\0") == []
    file = stores.files.begin(OWNER, now=1000)
    stores.files.complete(file, purpose="batch", filename="a\0b", size=0, keep_s=None, now=1000)
    batch = stores.create(file)
    stores.progress.accept(batch, [NewLine(1, 0, 1, "a")], model="m\0", now=1001)
    assert stores.progress.get(batch)["status"] == "in_progress"


def test_a_server_that_does_not_answer_is_said_so() -> None:
    database = open_database("postgresql://concur@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailableError, match="refused"):
        Stores(database)


def test_a_server_that_takes_a_connection_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_database, "CONNECT_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = open_database(f"postgresql://concur@127.0.0.1:{silent.getsockname()[1]}/none")
        with pytest.raises(StoreUnavailableError, match="timeout"):
            Stores(database)


@pytest.mark.parametrize("where", ["mysql://a/b", "postgresql+nothing://a/b", "nonsense://a"])
def test_other_servers_are_refused(where: str) -> None:
    with pytest.raises(ConfigError, match=r"batch\.store"):
        open_database(where)


def test_a_proxy_takes_over_from_one_that_stops(url: str) -> None:
    """Orderly: it lets go at once."""
    env = {"CONCUR_BATCH__STORE": url, "CONCUR_CONTROL__LAW": "unlimited", "CONCUR_SERVER__GRACE_S": "0"}
    with SlowEngine() as slow, ProxyProcess([slow.url], env=env) as second:
        with ProxyProcess([slow.url], env=env) as first, client_of(first, "k") as client:
            batch = submit(client, [chat(number) for number in range(4)]).id
            slow.gate.wait_for(4)
        slow.gate.open.set()
        with client_of(second, "k") as client:
            done = wait(client, batch)
            assert [answer["custom_id"] for answer in content(client, done.output_file_id)] == [
                f"id {number}" for number in range(4)
            ]


@pytest.mark.slow
def test_a_proxy_takes_over_from_one_that_was_killed(url: str) -> None:
    """Once the lease is over."""
    env = {"CONCUR_BATCH__STORE": url}
    with (
        EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as engine,
        ProxyProcess([engine.url], env=env) as second,
    ):
        first = ProxyProcess([engine.url], env=env | {"CONCUR_BATCH__MAX_RUNNING": "2"})
        with client_of(first, "k") as client:
            batch = submit(client, [chat(number, tokens=30) for number in range(200)]).id
            wait(client, batch, "in_progress")
        os.kill(pid := first.pid, signal.SIGKILL)
        assert ended(pid)
        first.close()
        with client_of(second, "k") as client:
            done = wait(client, batch, patience_s=runner.LEASE_S + 60)
            answers = content(client, done.output_file_id)
    assert [answer["custom_id"] for answer in answers] == [f"id {number}" for number in range(200)]

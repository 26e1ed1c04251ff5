"""Batches where the proxy checks keys: who sees them, what their lines may use, and when they end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from concur_proxy.auth.keys import new_key, with_key
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.stores import sqlite
from tests.batch.test_client import SlowEngine, chat, client_of, content, submit, upload, wait
from tests.clients.stack import ProxyProcess

LASTING, PASSING, NARROW = new_key(), new_key(), new_key()
TOMORROW = (dt.datetime.now(dt.UTC) + dt.timedelta(days=2)).date().isoformat()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    text = with_key(with_key("", "f", LASTING, "lasting"), "f", PASSING, "passing", expires=TOMORROW)
    path = tmp_path / "keys.yaml"
    path.write_text(with_key(text, "f", NARROW, "narrow", models=["other"]))
    return path


def env_of(keys: Path, tmp_path: Path) -> dict[str, str]:
    return {"CONCUR_AUTH__KEYS_FILE": str(keys), "CONCUR_BATCH__STORE": str(tmp_path / "batches.db")}


@pytest.fixture
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=50.0)) as server:
        yield server.url


def test_lines_are_their_callers_turns_whatever_kind_of_key_it_has(keys: Path, engine: str, tmp_path: Path) -> None:
    with ProxyProcess([engine], env=env_of(keys, tmp_path)) as proxy:
        for key in (LASTING, PASSING):
            with client_of(proxy, key) as client:
                done = wait(client, submit(client, [chat(1), chat(2)]).id)
                assert len(content(client, done.output_file_id)) == 2
        with client_of(proxy, NARROW) as client:
            (error,) = content(client, wait(client, submit(client, [chat(1)]).id).error_file_id)
            assert error["response"]["status_code"] == 403
            assert len(client.batches.list().data) == 1
        with client_of(proxy, "nobody's") as client, pytest.raises(openai.AuthenticationError):
            upload(client, [chat(1)])


def test_only_a_key_that_never_expires_is_kept_and_only_while_the_batch_runs(keys: Path, tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    with SlowEngine() as slow:
        with ProxyProcess([slow.url], env=env_of(keys, tmp_path)) as proxy:
            for number, key in enumerate((LASTING, PASSING), 1):
                with client_of(proxy, key) as client:
                    submit(client, [chat(1)])
                slow.gate.wait_for(number)
        assert identities(store) == [True, False]
        slow.gate.open.set()
        with ProxyProcess([slow.url], env=env_of(keys, tmp_path)) as proxy:
            for key in (LASTING, PASSING):
                with client_of(proxy, key) as client:
                    done = wait(client, client.batches.list().data[0].id)
                    assert len(content(client, done.output_file_id)) == 1
    with sqlite(store) as stores, stores.database.transaction() as t:
        assert [row["identity"] for row in t.rows("SELECT identity FROM batches")] == [None, None]


def identities(store: Path) -> list[bool]:
    """Whether a key is kept with each batch, the oldest first."""
    with sqlite(store) as stores, stores.database.transaction() as t:
        rows = t.rows("SELECT identity FROM batches ORDER BY place")
        assert all(PASSING not in row["identity"] for row in rows)
        return [LASTING in row["identity"] for row in rows]

"""Stores for tests: a fresh SQLite file, a PostgreSQL server of our own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from concur_proxy.batch import schema
from concur_proxy.batch.database import Database, SqliteDatabase
from concur_proxy.batch.files import CHUNK_BYTES, Files
from concur_proxy.batch.progress import Progress
from concur_proxy.batch.records import NewBatch
from concur_proxy.batch.store import Batches
from concur_proxy.fleet import warden
from tests.ports import free_port

PATIENCE_S, POLL_S = 60.0, 0.05
RETENTION_S = 30 * 86_400
OWNER = "somebody"
CHAT = "/v1/chat/completions"


@dataclass
class Stores:
    """Everything that looks at one database."""

    database: Database

    def __post_init__(self) -> None:
        self.secret = schema.prepare(self.database)
        self.files = Files(self.database, retention_s=RETENTION_S)
        self.batches = Batches(self.database, retention_s=RETENTION_S)
        self.progress = Progress(self.database, retention_s=RETENTION_S)

    def upload(self, data: bytes, *, owner: str = OWNER, now: float = 1000.0, keep_s: int | None = None) -> str:
        file = self.files.begin(owner, now=now)
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            self.files.add(file, number, data[start : start + CHUNK_BYTES])
        self.files.complete(file, purpose="batch", filename="in.jsonl", size=len(data), keep_s=keep_s, now=now)
        return file

    def create(self, file: str, *, owner: str = OWNER, now: float = 1000.0, window_s: int = 3600) -> str:
        new = NewBatch(owner, CHAT, file, "1h", window_s, None, None, '{"authorization": "Bearer secret"}')
        return str(self.batches.create(new, now=now)["id"])

    def content(self, file: str | None, *, owner: str = OWNER) -> bytes:
        return b"" if file is None else b"".join(self.files.pieces(self.files.find(owner, file)))


@contextlib.contextmanager
def sqlite(path: Path) -> Iterator[Stores]:
    database = SqliteDatabase(str(path))
    try:
        yield Stores(database)
    finally:
        database.close()


def postgres_programs() -> Path | None:
    """Where PostgreSQL's programs are; Debian puts them beside the path."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: -float(place.parent.name))
    return next((place for place in places if (place / "postgres").exists()), None)


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """A server of our own on a free port; yields the URL of its database."""
    programs = postgres_programs()
    assert programs is not None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="concur-postgres-") as folder:
        data = Path(folder, "data")
        dropped = _unprivileged(folder)
        options = ["-A", "trust", "-U", "concur", "--no-sync", "--locale=C.UTF-8", "-E", "UTF8"]
        initdb = [*dropped, str(programs / "initdb"), "-D", str(data), *options]
        made = subprocess.run(initdb, capture_output=True, text=True, check=False, cwd=folder)
        assert made.returncode == 0, made.stderr
        settings = ["-c", f"port={port}", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", folder]
        command = warden.command([*dropped, str(programs / "postgres"), "-D", str(data), *settings], grace_s=5)
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder) as server,
        ):
            assert server.stdin is not None
            try:
                _await(programs, port, server, Path(folder, "log"))
                yield f"postgresql://concur@127.0.0.1:{port}/postgres"
            finally:
                server.stdin.close()


def _unprivileged(folder: str) -> list[str]:
    """What to put before a command of PostgreSQL, which does not run as root."""
    if os.getuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]


def _await(programs: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    asked = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "1"]
    deadline = time.monotonic() + PATIENCE_S
    while subprocess.run(asked, check=False).returncode != 0:
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(POLL_S)

"""The parts of the Batch API, put together."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial

import orjson

from concur_proxy.auth.caller import Caller
from concur_proxy.batch import schema
from concur_proxy.batch.database import Row, open_database
from concur_proxy.batch.entry import Entry
from concur_proxy.batch.files import Files
from concur_proxy.batch.job import Job
from concur_proxy.batch.progress import Progress
from concur_proxy.batch.runner import Runner
from concur_proxy.batch.sending import Sender
from concur_proxy.batch.store import Batches
from concur_proxy.batch.upload import FORM_BYTES, Upload
from concur_proxy.batch.validation import Rules
from concur_proxy.batch.worker import Worker
from concur_proxy.config import Settings
from concur_proxy.core.identity import namespace_of
from concur_proxy.errors import StoreUnavailableError
from concur_proxy.gateway.handler import Handler

CREDENTIALS = ("authorization", "x-api-key")


class BatchService:
    """Everything behind /v1/files and /v1/batches. ``start`` and ``stop`` belong to one event loop."""

    def __init__(self, settings: Settings, handler: Handler) -> None:
        """ConfigError where the store cannot be used; StoreUnavailableError where its server does not answer."""
        assert settings.batch.store is not None
        self._settings = settings
        self.clock = time.time
        self._database = open_database(settings.batch.store.get_secret_value())
        self._secret = schema.prepare(self._database)
        retention_s = settings.batch.retention_s
        self.files = Files(self._database, retention_s=retention_s)
        self.batches = Batches(self._database, retention_s=retention_s)
        self._progress = Progress(self._database, retention_s=retention_s)
        if self._database.exclusive:
            self._progress.release_all()
            self.files.discard_unfinished()
        self._remains: set[str] = set()
        """Uploads that came to nothing, and that the store could not take back."""
        self.worker = Worker()
        self._access = handler.access
        self._entry = Entry(handler)
        self._slots = asyncio.Semaphore(settings.batch.max_running)
        self.runner = Runner(self._progress, self.worker, self._job, self._sweep, self.clock)
        handler.max_upload_bytes = settings.batch.max_file_bytes + FORM_BYTES

    async def start(self) -> None:
        await self._entry.open()
        self.runner.start()

    async def stop(self) -> None:
        await self.runner.stop()
        await self._entry.close()
        self.worker.close()
        self._database.close()

    # who asks

    def owner(self, headers: Mapping[str, str], caller: Caller | None) -> str:
        """Return whose files a request sees, the same after every restart. ``headers`` have lower-case names."""
        if caller is not None:
            return f"caller {caller.namespace}"
        return namespace_of(headers.get("authorization"), headers.get("x-api-key"), self._secret)

    def identity(self, headers: Mapping[str, str], peer: str, caller: Caller | None) -> dict[str, object]:
        """Return by whom the lines of a batch are sent: its owner's headers.

        A key that never expires is kept, so that it can be taken back. For others, which batches outlive, the caller.
        """
        tenant = self._settings.sessions.tenant_header
        kept = caller is None or caller.expires_at == math.inf
        names = (*(CREDENTIALS if kept else ()), *([tenant.lower()] if tenant else []))
        chain = ", ".join(part for part in (headers.get("x-forwarded-for"), peer) if part)
        told = {name: headers[name] for name in names if name in headers}
        told |= {"x-forwarded-for": chain} if chain else {}
        if caller is None or kept:
            return {"headers": told}
        return {"headers": told, "caller": [caller.name, caller.namespace, caller.models]}

    # what is asked

    async def upload(
        self, owner: str, content_type: str, stream: AsyncIterator[bytes], *, length: int | None = None
    ) -> Row:
        """Keep an uploaded file, whole or not at all. ``length``: bytes of the form, where its client tells."""
        await self._discard(*self._remains)
        batch = self._settings.batch
        most = batch.max_file_bytes if length is None else min(batch.max_file_bytes, length)
        file = await self.worker.run(self.files.begin, owner, size=most, now=self.clock())
        try:
            others = await self.worker.run(self.files.used_bytes) - most
            upload = Upload(file, self.files, self.worker, min(most, max(batch.max_bytes - others, 0)))
            return await upload.take(content_type, stream)
        except BaseException:
            await self._discard(file)
            raise

    async def _discard(self, *files: str) -> None:
        """Forget uploads that came to nothing: now, or before the next one where the store fails."""
        self._remains.update(files)
        with suppress(StoreUnavailableError):
            for file in files:
                await self.worker.run(self.files.discard, file)
                self._remains.discard(file)

    # what jobs are made of

    def _job(self, batch: str, runner: str) -> Job:
        return Job(batch, runner, self._progress, self.worker, self._slots, self._rules, self._sender, self.clock)

    def _rules(self, endpoint: str) -> Rules:
        settings = self._settings
        return Rules(endpoint, settings.batch.max_lines, settings.server.max_body_bytes, settings.sessions.headers)

    def _sender(self, row: Row) -> Sender:
        told = orjson.loads(row["identity"] or '{"headers": {}}')
        headers: dict[str, str] = told["headers"]
        access = self._access
        vouched = None
        if access is not None and "caller" in told:
            name, namespace, models = told["caller"]
            vouched = headers["authorization"] = access.vouch(Caller(name, namespace, models=models))
        identity = [(name.encode(), value.encode()) for name, value in headers.items()]
        sender = Sender(row["id"], row["endpoint"], identity, self._settings.sessions.headers, self._entry)
        if access is not None and vouched is not None:
            sender.on_close = partial(access.withdraw, vouched)
        return sender

    def _sweep(self, now: float) -> None:
        while self.files.sweep(now=now):
            pass
        self.batches.sweep(now=now)

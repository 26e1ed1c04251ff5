"""Takes an uploaded form from the wire into the store, a chunk at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from concur_proxy.batch import requests
from concur_proxy.batch.database import Row
from concur_proxy.batch.files import CHUNK_BYTES, Files
from concur_proxy.batch.multipart import FormReader, Part
from concur_proxy.batch.worker import Worker
from concur_proxy.errors import BodyTooLargeError, RequestError

MAX_FIELD_BYTES = 4096
FORM_BYTES = 64 << 10
"""What a form may have around its file."""


class Upload:
    """One upload. ``file``: its id in the store."""

    def __init__(
        self, file: str, files: Files, worker: Worker, limit_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = file
        self._files = files
        self._worker = worker
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._part: Part | None = None
        self._fields: dict[str, bytes] = {}
        self._filename: str | None = None
        self._buffer = bytearray()
        self._chunks = 0
        self._size = 0

    async def take(self, content_type: str, stream: AsyncIterator[bytes]) -> Row:
        """Return the file once it is whole; RequestError where the form is not in order."""
        form = FormReader(content_type)
        async for data in stream:
            for event in form.feed(data):
                if isinstance(event, Part):
                    self._begin(event)
                else:
                    await self._data(event)
        if not form.complete:
            raise RequestError("The form ends before its last boundary.")
        if self._filename is None:
            raise RequestError("Missing required parameter: 'file'.", param="file")
        return await self._complete(self._filename)

    def _begin(self, part: Part) -> None:
        if part.name == "file":
            if self._filename is not None:
                raise RequestError("The form has two files; send one.", param="file")
            self._filename = part.filename or "file"
        else:
            self._fields[part.name] = b""
        self._part = part

    async def _data(self, data: bytes) -> None:
        assert self._part is not None
        if self._part.name != "file":
            self._fields[self._part.name] += data
            if len(self._fields[self._part.name]) > MAX_FIELD_BYTES:
                raise RequestError(f"The field {self._part.name} is too long.", param=self._part.name)
            return
        self._size += len(data)
        if self._size > self._limit_bytes:
            raise BodyTooLargeError(
                f"The file is larger than {self._limit_bytes} bytes: see batch.max_file_bytes and batch.max_bytes.",
                param="file",
            )
        self._buffer += data
        while len(self._buffer) >= CHUNK_BYTES:
            await self._add(CHUNK_BYTES)

    async def _add(self, size: int) -> None:
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        await self._worker.run(self._files.add, self._file, self._chunks, chunk)
        self._chunks += 1

    async def _complete(self, filename: str) -> Row:
        fields = {name: value.decode(errors="replace").strip() for name, value in self._fields.items()}
        purpose, keep_s = requests.upload_terms(fields)
        if self._buffer:
            await self._add(len(self._buffer))
        return await self._worker.run(
            self._files.complete,
            self._file,
            purpose=purpose,
            filename=filename[:255],
            size=self._size,
            keep_s=keep_s,
            now=self._clock(),
        )

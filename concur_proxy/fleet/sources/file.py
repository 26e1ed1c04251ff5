"""A file with a list of backends: what a configuration management tool or a mounted ConfigMap writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from pydantic import ValidationError

from concur_proxy.config import Settings
from concur_proxy.config.problems import describe
from concur_proxy.fleet.sources.base import Backends, SourceError, Tell, watch

MAX_BYTES = 4 << 20


def parse(text: str) -> Backends:
    """Return the backends of a list, or of a mapping with the key ``backends``; raise ``SourceError``.

    Nobody is named by an empty list only: a file without any is half written, or has its key misspelt.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SourceError(f"is not valid YAML: {getattr(error, 'problem', None) or error}") from None
    listed = data.get("backends") if isinstance(data, dict) else data
    if not isinstance(listed, list):
        raise SourceError("must hold a list of backends, as it is or as backends; [] for none")
    try:
        return Settings.model_validate({"backends": listed}).backends
    except ValidationError as error:
        raise SourceError("; ".join(describe(detail, None) for detail in error.errors())) from None


async def watch_file(path: Path, tell: Tell, *, interval_s: float) -> None:
    """Tell what the file says, whenever that has changed."""
    name = f"fleet.file {path}"

    async def look() -> Backends:
        return parse(await asyncio.to_thread(_read, path))

    await watch(name, look, tell, interval_s=interval_s)


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES >> 20} MB")
    return text

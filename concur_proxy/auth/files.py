"""Writes the file of keys, whole or not at all: a new one for its owner's eyes only, others as they were."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from concur_proxy.auth.keys import new_key, with_key
from concur_proxy.errors import ConfigError


def add_key(path: Path, name: str, *, models: Iterable[str] = (), expires: str | None = None) -> str:
    """Make a key, add what stands for it to the file at ``path``, and return it: nobody will ever see it again.

    Raises ``ConfigError`` where the file cannot be read or written, or is not one of keys.
    """
    key = new_key()
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        _replace(path, with_key(before, str(path), key, name, models=models, expires=expires))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read and written: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be used: {error}") from None
    return key


def _replace(path: Path, text: str) -> None:
    before = path.stat() if path.exists() else None
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
        if before is not None:  # a proxy that may read it today may do so tomorrow
            os.chown(beside, before.st_uid, before.st_gid)
            beside.chmod(before.st_mode & 0o777)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)

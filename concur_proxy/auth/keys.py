"""API keys: made with 256 random bits, and kept as HMAC-SHA256 under the salt of the file that lists them.

A key is found by its HMAC in a dictionary: no key is ever compared with another one, so that no time tells how much
of a guess was right. Whoever reads the file cannot call with what is in it.

    salt: 64 hexadecimal digits
    keys:
    - name: team-a
      hmac: 64 hexadecimal digits
      models: [qwen3-32b, "llama*"]   # all where it is missing
      expires: 2027-01-31             # the first day (UTC) on which it is not taken any more; never where it is missing
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from concur_proxy.auth.caller import Caller, is_name
from concur_proxy.errors import ConfigError

PREFIX = "ck_"
"""What keys begin with, so that scanners find those which were published by mistake."""
HEX_256 = re.compile(r"[0-9a-f]{64}").fullmatch
FIELDS = frozenset({"name", "hmac", "models", "expires"})
HEAD = "# API keys of concur-proxy as HMAC-SHA256: `concur-proxy keygen` adds one; without its entry a key is void.\n"


def new_key() -> str:
    """Return a new key."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str, salt: bytes) -> str:
    """Return what stands for a key in a file."""
    return hmac.new(salt, key.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


class Keyring:
    """The keys of one file. Several keys may have one name: while a new one takes the place of an old one."""

    def __init__(self, salt: bytes = b"", callers: Mapping[str, Caller] | None = None) -> None:
        """``callers`` by the ``digest`` of their keys."""
        self.salt = salt
        self._callers = dict(callers or {})

    def find(self, key: str) -> Caller | None:
        """Return whose key it is, None where it is nobody's. Whether it has expired is the caller's to look at."""
        return self._callers.get(digest(key, self.salt)) if self._callers else None

    def __len__(self) -> int:
        return len(self._callers)


class Keyrings:
    """Several files of keys, each with its own salt."""

    def __init__(self, rings: Iterable[Keyring] = ()) -> None:
        self._rings = tuple(rings)

    def find(self, key: str) -> Caller | None:
        """Return whose key it is, None where it is nobody's."""
        return next((found for ring in self._rings if (found := ring.find(key)) is not None), None)


def parse(text: str, where: str) -> Keyring:
    """Read a file of keys; raise ``ConfigError`` that says what is wrong, and where, without repeating a secret."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{where}: not valid YAML; `concur-proxy keygen` writes such a file") from None
    if not isinstance(data, dict) or not data.keys() <= {"salt", "keys"}:
        raise ConfigError(f"{where}: must hold `salt` and `keys` and nothing else; `concur-proxy keygen` writes it")
    salt, entries = data.get("salt"), data.get("keys") or []
    if not isinstance(salt, str) or not HEX_256(salt):
        raise ConfigError(f"{where}: salt must be 64 hexadecimal digits in quotes")
    if not isinstance(entries, list):
        raise ConfigError(f"{where}: keys must be a list")
    callers = dict(_entry(entry, f"{where}: keys[{number}]") for number, entry in enumerate(entries))
    if len(callers) < len(entries):
        raise ConfigError(f"{where}: a key is listed twice")
    return Keyring(bytes.fromhex(salt), callers)


def _entry(entry: Any, where: str) -> tuple[str, Caller]:
    if not isinstance(entry, dict) or not entry.keys() <= FIELDS:
        raise ConfigError(f"{where} must have name and hmac, may have models and expires, and nothing else")
    name, code = entry.get("name"), entry.get("hmac")
    if not is_name(name):
        raise ConfigError(f"{where}.name must be a text of at most 256 printable characters")
    if not isinstance(code, str) or not HEX_256(code):
        raise ConfigError(f"{where}.hmac must be 64 hexadecimal digits in quotes")
    models = _models(entry.get("models"), where)
    return code, Caller(name, f"key:{name}", models=models, expires_at=expiry(entry.get("expires"), f"{where}.expires"))


def _models(value: object, where: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(model, str) and model for model in value):
        raise ConfigError(f"{where}.models must be a list of names, such as [qwen3-32b, 'llama*'], or missing for all")
    return value


def expiry(value: object, where: str) -> float:
    """Return the UNIX time from which a date on counts, infinite for none."""
    if value is None:
        return math.inf
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            value = None
    if type(value) is not dt.date:
        raise ConfigError(f"{where} must be a date such as 2027-01-31")
    return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC).timestamp()


def with_key(
    text: str, where: str, key: str, name: str, *, models: Iterable[str] = (), expires: str | None = None
) -> str:
    """Return the text of a file of keys with one more in it, everything else as it was; empty ``text``: a new file.

    Raises ``ConfigError`` where the file, or what is added, cannot be used.
    """
    if not text.strip():
        text = f'{HEAD}salt: "{secrets.token_hex(32)}"\nkeys:\n'
    before = parse(text, where)
    lines = [f"- name: {_quoted(name)}", f'  hmac: "{digest(key, before.salt)}"']
    if listed := [_quoted(model) for model in models]:
        lines.append(f"  models: [{', '.join(listed)}]")
    if expires is not None:
        lines.append(f"  expires: {_quoted(expires)}")
    after = text.rstrip("\n").removesuffix(" []") + "\n" + "\n".join(lines) + "\n"
    if len(parse(after, where)) != len(before) + 1:
        raise ConfigError(f"{where}: the list `keys` must be the last thing in the file, one key after the other")
    return after


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

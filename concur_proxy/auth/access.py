"""From the headers of a request to its caller. Runs on every request where keys are checked."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from concur_proxy.auth.caller import Caller
from concur_proxy.auth.keys import Keyrings

MAX_REMEMBERED = 10_000
MAX_CREDENTIAL = 16 << 10
"""No key is longer, and no token of a sane identity provider."""


class Tokens(Protocol):
    """Takes tokens that are no keys."""

    def verify(self, token: str) -> Caller | None: ...


class Access:
    """Knows the callers. Whom it found once it knows by the header as it came, so that a request costs one look-up.

    Only good keys and tokens are remembered: guessing fills no memory.
    """

    def __init__(
        self, keys: Keyrings | None = None, tokens: Tokens | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``clock`` returns UNIX time."""
        self._keys = keys or Keyrings()
        self._tokens = tokens
        self._clock = clock
        self._known: dict[str, Caller] = {}
        self._vouched: dict[str, Caller] = {}

    def caller(self, headers: Mapping[str, str]) -> Caller | None:
        """Return who calls, None for no credential and for one that is not taken. ``headers`` by lower-case name.

        ``Authorization`` counts where there is an ``x-api-key``, too.
        """
        told = headers.get("authorization") or headers.get("x-api-key")
        if told is None:
            return None
        found = self._known.get(told)
        if found is None:
            found = self._vouched.get(told)
        if found is None:
            bare = credential(told)
            found = self._find(bare)
            if found is None:
                return None
            if len(told) <= len(bare) + len("Bearer "):  # with more around it there are endless ways to say it
                self._remember(told, found)
        if found.expires_at <= self._clock():
            self._known.pop(told, None)
            return None
        return found

    def vouch(self, caller: Caller) -> str:
        """Return an ``Authorization`` for a caller whose own may have expired; it is good until ``withdraw``."""
        told = f"Bearer {secrets.token_urlsafe(32)}"
        self._vouched[told] = caller
        return told

    def withdraw(self, told: str) -> None:
        """Take back what ``vouch`` gave."""
        self._vouched.pop(told, None)

    def replace_keys(self, keys: Keyrings) -> None:
        """Take other keys from now on."""
        self._keys = keys
        self.forget()

    def forget(self) -> None:
        """Look everybody up anew: what was known may not hold any more."""
        self._known.clear()

    def _find(self, told: str) -> Caller | None:
        if not told or len(told) > MAX_CREDENTIAL:
            return None
        found = self._keys.find(told)
        return self._tokens.verify(told) if found is None and self._tokens is not None else found

    def _remember(self, told: str, caller: Caller) -> None:
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[told] = caller


def credential(told: str) -> str:
    """Return the key or token in a header's value, which may have ``Bearer`` in front of it."""
    scheme, _, value = told.strip().partition(" ")
    return value.strip() if scheme.lower() == "bearer" else told.strip()

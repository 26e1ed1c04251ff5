"""Keeps what callers are checked with fresh: the file of keys, and the public keys of the identity provider."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from concur_proxy.auth import keys
from concur_proxy.auth.access import Access
from concur_proxy.auth.jwks import JwksError, fetch
from concur_proxy.config import AuthSettings, TokenSettings
from concur_proxy.errors import ConfigError
from concur_proxy.runtime.watch import FileWatch
from concur_proxy.tasks import end

if TYPE_CHECKING:
    from concur_proxy.auth.tokens import TokenVerifier

FETCH_EVERY_S = 300.0
RETRY_S = 10.0
"""After a failure, and between two fetches for keys that tokens name and nobody knows."""

logger = logging.getLogger(__name__)


class Doorkeeper:
    """Raises ``ConfigError`` for files that cannot be used; later ones that cannot are told, and nothing changes."""

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._unknown_key = asyncio.Event()
        self._has_heard = self._has_asked = False
        self._tokens = _verifier(settings.jwt, self._unknown_key.set)
        self.access = Access(read_keys(settings), self._tokens)
        self._watches = list(self._watched())
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        for watch in self._watches:
            watch.start()
        if self._tokens is not None and self._settings.jwt.jwks_file is None:
            self._task = asyncio.get_running_loop().create_task(self._fetch_again_and_again(), name="identity provider")

    async def stop(self) -> None:
        for watch in self._watches:
            await watch.stop()
        await end(self._task)

    @property
    def is_ready(self) -> bool:
        """Whether callers can be known: before the identity provider is heard, good tokens would be refused for good.

        Where there are keys as well, those who have them do not wait for a provider that does not answer.
        """
        has_keys = self._settings.keys_file is not None or self._settings.keys is not None
        return self._tokens is None or self._has_heard or (has_keys and self._has_asked)

    def _watched(self) -> list[FileWatch]:
        watches = []
        if self._settings.keys_file is not None:
            watches.append(FileWatch([self._settings.keys_file], self._read_keys))
        if self._tokens is not None and self._settings.jwt.jwks_file is not None:
            watches.append(FileWatch([self._settings.jwt.jwks_file], self._read_jwks))
            self._read_jwks()
        return watches

    def _read_keys(self) -> None:
        self.access.replace_keys(read_keys(self._settings))

    def _read_jwks(self) -> None:
        path = self._settings.jwt.jwks_file
        assert path is not None
        try:
            jwks = orjson.loads(Path(path).read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"auth.jwt.jwks_file: {path} cannot be used: {error}") from None
        if not isinstance(jwks, dict) or not self._take(jwks):
            raise ConfigError(f"auth.jwt.jwks_file: {path} has no key for auth.jwt.algorithms")

    def _take(self, jwks: dict[str, object]) -> int:
        assert self._tokens is not None
        found = self._tokens.replace_keys(jwks)
        self._has_heard = self._has_heard or found > 0
        self.access.forget()
        return found

    async def _fetch_again_and_again(self) -> None:
        while True:
            pause_s = FETCH_EVERY_S if await self._fetch() else RETRY_S
            self._has_asked = True
            self._unknown_key.clear()
            await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(pause_s - RETRY_S):
                    await self._unknown_key.wait()
            except TimeoutError:
                pass

    async def _fetch(self) -> bool:
        rules = self._settings.jwt
        assert rules.issuer is not None
        try:
            jwks = await fetch(rules.issuer, rules.jwks_url)
        except JwksError as error:
            logger.warning("the keys of the identity provider stay as they are: %s", error)
            return False
        if not (found := self._take(jwks)):
            logger.warning("the identity provider has no key for auth.jwt.algorithms: no token can be taken")
        return found > 0


def read_keys(settings: AuthSettings) -> keys.Keyrings:
    """Return the keys of the file and of the text; raise ``ConfigError`` where one cannot be used."""
    rings = []
    if settings.keys_file is not None:
        try:
            text = Path(settings.keys_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"auth.keys_file: {settings.keys_file} cannot be read: {error}") from None
        rings.append(keys.parse(text, f"auth.keys_file: {settings.keys_file}"))
    if settings.keys is not None:
        rings.append(keys.parse(settings.keys.get_secret_value(), "auth.keys"))
    return keys.Keyrings(rings)


def _verifier(settings: TokenSettings, on_unknown_key: Callable[[], None]) -> TokenVerifier | None:
    if settings.issuer is None or settings.audience is None:
        return None
    try:
        from concur_proxy.auth.tokens import TokenRules, TokenVerifier  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ConfigError("auth.jwt needs the extra jwt: pip install 'concur-proxy[jwt]'") from None
    rules = TokenRules(
        issuer=settings.issuer,
        audience=settings.audience,
        algorithms=tuple(settings.algorithms),
        name_claim=settings.name_claim,
        models_claim=settings.models_claim,
    )
    return TokenVerifier(rules, on_unknown_key=on_unknown_key)

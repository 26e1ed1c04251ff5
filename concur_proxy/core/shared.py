"""Prefixes that many sessions share: their length, learned from answers, and each counted once while it is used."""

from __future__ import annotations

from typing import Final

KNOWN: Final = 1024
RISE: Final = 0.1


class PrefixSizes:
    """Tokens of the shared prefixes of one backend, by ``TurnFacts.prefix_key``; the oldest of many are forgotten."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int | None, int] = {}  # plain, and asked for None, too: it is looked into four times a turn

    def __len__(self) -> int:
        return len(self._sizes)

    def of(self, key: int | None) -> int:
        """Return the tokens that are known to be shared; 0 where nothing is known."""
        size = self._sizes.get(key)
        return 0 if size is None else size

    def learn(self, key: int, cached_tokens: int) -> int:
        """Take in what a session's first turn found in the cache; return the size from now on.

        Down at once, up slowly: a copy of a whole conversation finds far more than what all of its kind share.
        """
        known = self._sizes.get(key, 0)
        if cached_tokens > 0:
            rises = known and cached_tokens > known
            size = known + int(RISE * (cached_tokens - known)) if rises else cached_tokens
            self._sizes.pop(key, None)
            self._sizes[key] = size  # the newest stands last
            if len(self._sizes) > KNOWN:
                del self._sizes[next(iter(self._sizes))]
        return self.of(key)


class SharedTokens:
    """The prefixes that some sessions use now."""

    __slots__ = ("_users", "tokens")

    def __init__(self) -> None:
        self._users: dict[int, list[int]] = {}
        self.tokens = 0
        """Of all prefixes in use, each once."""

    def __contains__(self, key: int) -> bool:
        return key in self._users

    def cost_of(self, key: int | None, size: int) -> int:
        """Return what ``join`` would add."""
        return 0 if key is None or key in self._users else size

    def join(self, key: int | None, size: int) -> None:
        if key is None:
            return
        users = self._users.get(key)
        if users is None:
            self._users[key] = [1, size]
            self.tokens += size
        else:
            users[0] += 1

    def leave(self, key: int | None) -> None:
        if key is None:
            return
        users = self._users[key]
        users[0] -= 1
        if users[0] == 0:
            del self._users[key]
            self.tokens -= users[1]

    def resize(self, key: int, size: int) -> None:
        """The prefix is longer or shorter than was known."""
        if users := self._users.get(key):
            self.tokens += size - users[1]
            users[1] = size

"""The prefixes that most sessions share, as requests that would bring each of them into an empty cache. No I/O.

A prefix is the system text and the tools at the start of a prompt; nothing that a user or an agent has said is kept.
Counts are of sessions, and halve now and then: what was popular once makes room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from concur_proxy.core.prefix import SYSTEM_ROLES
from concur_proxy.model import SessionKey, TurnFacts

KEPT: Final = 10
"""Prefixes that are kept as requests."""
KNOWN: Final = 256
"""Prefixes that are counted."""
FEWEST: Final = 4
"""Sessions from which a prefix counts as shared."""
HALVED_AFTER: Final = 10_000
"""Sessions, all prefixes together, after which all counts halve."""
MAX_BYTES: Final = 1 << 20
"""A longer request is not kept."""

CHAT: Final = b"/v1/chat/completions"
MESSAGES: Final = b"/v1/messages"
_FIELDS: Final[tuple[str, ...]] = ("model", "system", "tools", "cache_salt", "lora_path", "chat_template_kwargs")
_SHORTEST: Final[Mapping[str, object]] = {"max_tokens": 1, "stream": False}


class Replay(NamedTuple):
    """A request whose only use is what it leaves in the cache: a shared prefix."""

    path: str
    model: str
    body: bytes


class _Seen:
    __slots__ = ("last", "replay", "sessions")

    def __init__(self) -> None:
        self.sessions = 0
        self.last: SessionKey | None = None
        self.replay: Replay | None = None


class PopularPrefixes:
    """Bounded: those seen longest ago are forgotten, and only the most popular ones keep their text."""

    __slots__ = ("_seen", "_sessions")

    def __init__(self) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()
        self._sessions = 0

    def see(self, turn: TurnFacts, path: bytes, body: bytes) -> None:
        """Take in a turn; one of the session that was seen last with the same prefix says nothing new."""
        key = turn.prefix_key
        if key is None:
            return
        seen = self._seen.get(key)
        if seen is None:
            seen = self._add(key)
        elif seen.last == turn.session and turn.session is not None:
            return
        seen.last = turn.session
        seen.sessions += 1
        self._sessions += 1
        self._seen.move_to_end(key)
        if seen.replay is None and seen.sessions >= FEWEST and seen.sessions & (seen.sessions - 1) == 0:
            self._keep(seen, path, body)
        if self._sessions >= HALVED_AFTER:
            self._halve()

    def replays(self) -> list[Replay]:
        """Return what most sessions share, the most popular first."""
        kept = sorted((one for one in self._seen.values() if one.replay is not None), key=lambda one: -one.sessions)
        return [one.replay for one in kept if one.replay is not None]

    def _add(self, key: int) -> _Seen:
        seen = self._seen[key] = _Seen()
        if len(self._seen) > KNOWN:
            self._seen.popitem(last=False)
        return seen

    def _keep(self, seen: _Seen, path: bytes, body: bytes) -> None:
        """Keep the text of a prefix if it is among the most popular ones; looked at whenever its count has doubled."""
        kept = [one for one in self._seen.values() if one.replay is not None]
        if len(kept) >= KEPT:
            least = min(kept, key=lambda one: one.sessions)
            if least.sessions >= seen.sessions:
                return
            least.replay = None
        seen.replay = replay_of(path, body)

    def _halve(self) -> None:
        self._sessions = 0
        for seen in self._seen.values():
            seen.sessions //= 2


def replay_of(path: bytes, body: bytes) -> Replay | None:
    """Return a request that starts like ``body`` and generates one token; None where there is none to be made."""
    if len(body) > MAX_BYTES or path not in (CHAT, MESSAGES):
        return None
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("model"), str):
        return None
    kept = {name: fields[name] for name in _FIELDS if name in fields}
    messages = [*_system_messages(fields), {"role": "user", "content": "."}]
    text = orjson.dumps({**kept, "messages": messages, **_SHORTEST})
    return Replay(path.decode(), str(fields["model"]), text)


def _system_messages(fields: Mapping[str, Any]) -> list[object]:
    found: list[object] = []
    messages = fields.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            break
        found.append(message)
    return found

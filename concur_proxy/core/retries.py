"""Tries that came to nothing: a retry takes the place in line of the first one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from concur_proxy.model import SessionKey, TurnFacts

REMEMBERED: Final = 20_000
MAX_DIGESTED: Final = 16 << 10
"""Bytes of a body that its digest is made of: hashing a megabyte takes as long as reading its JSON."""


class FirstTries:
    """When turns that failed, were refused or abandoned had first arrived, by session and body. Bounded."""

    __slots__ = ("_arrivals",)

    def __init__(self) -> None:
        self._arrivals: OrderedDict[tuple[SessionKey | None, int | None], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._arrivals)

    def remember(self, facts: TurnFacts, first_arrived_at: float) -> None:
        told = digest_of(facts)
        if told:
            self._put((facts.session, told), first_arrived_at)
        if facts.session is not None:
            self._put((facts.session, None), first_arrived_at)

    def recall(self, facts: TurnFacts, *, now: float, max_age_s: float) -> float:
        """Return when the turn was first tried, ``now`` for a first try. Each try is inherited once.

        The same body of the same session is a retry. One that says it is a retry takes its session's last try, however
        its body looks; without a session it must say so, since unrelated clients may send the same words.
        """
        if not self._arrivals or (facts.session is None and not facts.is_retry):
            return now
        told = digest_of(facts)
        found = self._arrivals.pop((facts.session, told), None) if told else None
        if facts.session is not None and (facts.is_retry or found is not None):
            last = self._arrivals.pop((facts.session, None), None)
            found = last if found is None else found
        return found if found is not None and now - found <= max_age_s else now

    def _put(self, key: tuple[SessionKey | None, int | None], first_arrived_at: float) -> None:
        self._arrivals[key] = first_arrived_at
        self._arrivals.move_to_end(key)
        if len(self._arrivals) > REMEMBERED:
            self._arrivals.popitem(last=False)


def digest_of(facts: TurnFacts) -> int:
    """Return what stands for a turn's body. Made where it is asked for: hardly any turn fails or is tried again."""
    return facts.body_digest or (digest(facts.body) if facts.body else 0)


def digest(body: bytes) -> int:
    """Return a number by which a retry is known: agents' turns differ in their length or at their end."""
    return hash(body if len(body) <= MAX_DIGESTED else (len(body), body[-MAX_DIGESTED:]))

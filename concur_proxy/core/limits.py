"""What one tenant may take: sessions that are active, turns that wait, turns and tokens a minute.

Rates are token buckets that hold one minute's worth: who has asked for nothing for a while may ask for that much at
once. Tokens are those that engines computed, as in the order ``fair``: what was not found in the cache, and what was
generated. They are known when a turn has ended: a tenant may overdraw its bucket with what runs at the same time, and
then waits until that is paid off.

A session is active while it holds a place, runs or waits. Which are is looked at when a tenant comes to its limit, so
that nothing has to be told when one ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from concur_proxy.core.policy import TenantLimits
from concur_proxy.model import RefusalReason, Usage

if TYPE_CHECKING:
    from concur_proxy.core.sessions import Session

DEFAULT: Final = "default"
"""The entry that holds for tenants without one of their own."""

REMEMBERED: Final = 10_000
"""Tenants; those heard of least recently make room (invariant 9)."""

SCAN: Final = 64
"""How many of the oldest tenants are looked at for one that may be forgotten."""

MINUTE_S: Final = 60.0


class Over(NamedTuple):
    """A limit that is reached, and the seconds until there is something left."""

    reason: RefusalReason
    wait_s: float


class Bucket:
    """So much a minute, of which one minute's worth is kept."""

    __slots__ = ("_at", "_level", "per_minute")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._level = per_minute
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until so much is there; 0 where it is."""
        self._fill(now)
        return max(0.0, amount - self._level) * MINUTE_S / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """Take some out, whether it is there or not."""
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        self._level = min(self.per_minute, self._level + max(0.0, now - self._at) * self.per_minute / MINUTE_S)
        self._at = now


class Account:
    """What one tenant has taken."""

    __slots__ = ("_sessions", "_tokens", "_turns", "held", "limits")

    def __init__(self, limits: TenantLimits, now: float) -> None:
        self.held = 0
        """Its turns that wait."""
        self._sessions: dict[Session, None] = {}
        self._turns: Bucket | None = None
        self._tokens: Bucket | None = None
        self.limits = limits
        self.set_limits(limits, now)

    def set_limits(self, limits: TenantLimits, now: float) -> None:
        self.limits = limits
        self._turns = _bucket(self._turns, limits.turns_per_minute, now)
        self._tokens = _bucket(self._tokens, limits.tokens_per_minute, now)

    def ask(self, now: float) -> Over | None:
        """Count a turn that arrives; return the rate that forbids it, and count nothing then."""
        if self._tokens is not None and (wait_s := self._tokens.wait_s(1.0, now)) > 0.0:
            return Over(RefusalReason.TOKEN_RATE, wait_s)
        if self._turns is not None:
            if (wait_s := self._turns.wait_s(1.0, now)) > 0.0:
                return Over(RefusalReason.TURN_RATE, wait_s)
            self._turns.take(1.0, now)
        return None

    def takes(self, session: Session) -> bool:
        """Tell whether a session may be active, and count it then."""
        most, sessions = self.limits.active_sessions, self._sessions
        if most is None or session in sessions:
            return True
        if len(sessions) >= most:
            self._sessions = sessions = {each: None for each in sessions if each.is_active}
            if len(sessions) >= most:
                return False
        sessions[session] = None
        return True

    @property
    def is_full(self) -> bool:
        """No more of its turns may wait."""
        return self.limits.held_turns is not None and self.held >= self.limits.held_turns

    def spend(self, usage: Usage, now: float) -> None:
        """Count what a turn has taken."""
        if self._tokens is not None:
            self._tokens.take(usage.prompt_tokens - (usage.cached_tokens or 0) + usage.completion_tokens, now)


def _bucket(bucket: Bucket | None, per_minute: float | None, now: float) -> Bucket | None:
    if per_minute is None:
        return None
    return bucket if bucket is not None and bucket.per_minute == per_minute else Bucket(per_minute, now)


class Limits:
    """Accounts of the tenants that have limits, by name."""

    __slots__ = ("_accounts", "_rules")

    def __init__(self, rules: Mapping[str, TenantLimits]) -> None:
        self._rules = rules
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, tenant: str, now: float) -> Account | None:
        """Return a tenant's account; None where nothing limits it."""
        account = self._accounts.get(tenant)
        if account is None:
            return self._open(tenant, now)
        self._accounts.move_to_end(tenant)
        return account

    def set_rules(self, rules: Mapping[str, TenantLimits], now: float) -> None:
        """Change the limits; what has been taken stays taken."""
        self._rules = rules
        for tenant, account in list(self._accounts.items()):
            limits = self._limits(tenant)
            if limits is None:
                del self._accounts[tenant]
            else:
                account.set_limits(limits, now)

    def _limits(self, tenant: str) -> TenantLimits | None:
        return self._rules.get(tenant) or self._rules.get(DEFAULT)

    def _open(self, tenant: str, now: float) -> Account | None:
        limits = self._limits(tenant)
        if limits is None:
            return None
        account = self._accounts[tenant] = Account(limits, now)
        if len(self._accounts) > REMEMBERED:
            self._forget_one()
        return account

    def _forget_one(self) -> None:
        """Forget the oldest one of which nothing waits, else the oldest: a turn that waits knows its account."""
        oldest = [tenant for tenant, _ in zip(self._accounts, range(SCAN), strict=False)]
        idle = (tenant for tenant in oldest if not self._accounts[tenant].held)
        del self._accounts[next(idle, oldest[0])]

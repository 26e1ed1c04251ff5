"""What each tenant has been served: the accounts behind ``fair``.

A tenant is an API key, or whoever a header names (``sessions.tenant_header``). Its account counts the tokens that
engines computed for it over its weight (the virtual counters of Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024). It never falls: places in line that follow it stay as they are until it is charged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from concur_proxy.core.sessions import Turn
from concur_proxy.core.statistics import Mean
from concur_proxy.model import Usage

REMEMBERED = 10_000
"""Tenants; those heard of least recently make room (invariant 9)."""


class Tenant:
    """``served``: tokens over weight. ``number`` tells apart who has been served alike."""

    __slots__ = ("credit", "number", "per_turn", "served", "waiting", "weight")

    def __init__(self, number: int, weight: float, per_turn: float) -> None:
        self.number = number
        self.weight = weight
        self.served = 0.0
        self.credit = 0.0
        """What has been charged too much; it is used up before anything is charged again."""
        self.per_turn = Mean(per_turn)
        self.waiting = 0

    def charge(self, tokens: float) -> None:
        """Charge tokens, or give some back where ``tokens`` is negative."""
        amount = tokens / self.weight - self.credit
        self.credit = max(0.0, -amount)
        self.served += max(0.0, amount)


class Accounts:
    """Tenants by name. One that comes back after it has asked for nothing starts where the others are by now."""

    __slots__ = ("_floor", "_made", "_per_turn", "_tenants", "_weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()
        self._made = 0
        self._floor = 0.0
        self._per_turn = Mean(1000.0)

    def __len__(self) -> int:
        return len(self._tenants)

    def of(self, turn: Turn) -> Tenant:
        """Return a turn's tenant."""
        return self._tenants.get(turn.facts.tenant) or self._new(turn.facts.tenant)

    def served(self, tenant: Tenant) -> float:
        """Return what counts for its place in line."""
        return tenant.served if tenant.waiting else max(tenant.served, self._floor)

    def joined(self, turn: Turn) -> None:
        tenant = self.of(turn)
        tenant.served = self.served(tenant)
        tenant.waiting += 1
        self._tenants.move_to_end(turn.facts.tenant)

    def left(self, turn: Turn) -> None:
        self._tenants[turn.facts.tenant].waiting -= 1

    def granted(self, turn: Turn) -> None:
        """Charge what a turn of this tenant usually takes, so that many turns let in at once are shared alike."""
        tenant = self.of(turn)
        self._floor = max(self._floor, tenant.served)
        if not turn.prepaid:
            turn.prepaid = tenant.per_turn.value
            tenant.charge(turn.prepaid)

    def finished(self, turn: Turn, usage: Usage | None) -> None:
        """Charge what it really was: tokens that the engine did not find in its cache, and those it generated."""
        tenant = self.of(turn)
        tokens = 0.0
        if usage is not None:
            tokens = float(usage.prompt_tokens - (usage.cached_tokens or 0) + usage.completion_tokens)
            tenant.per_turn.add(tokens)
            self._per_turn.add(tokens)
        tenant.charge(tokens - turn.prepaid)

    def _new(self, name: str) -> Tenant:
        self._made += 1
        tenant = Tenant(self._made, self._weights.get(name, 1.0), self._per_turn.value)
        self._tenants[name] = tenant
        if len(self._tenants) > REMEMBERED:
            self._forget_one()
        return tenant

    def _forget_one(self) -> None:
        """Forget the oldest one that waits for nothing, of the few oldest: whoever waits has joined lately."""
        for name in [name for name, _ in zip(self._tenants, range(64), strict=False)]:
            if not self._tenants[name].waiting:
                del self._tenants[name]
                return

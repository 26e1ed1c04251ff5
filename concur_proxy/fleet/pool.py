"""Which backends can stand in for each other. Pure.

Backends that share a model or adapter form a pool, directly or through others; held turns wait per pool, and those of a
model that some of its backends do not serve avoid them (``strangers``). The pool of
the first backend whose models are known is the default: turns that name no model go there, and so do backends whose
models nobody knows. A pool keeps its name as long as any of its backends is there, since turns wait under it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from concur_proxy.model import BackendId, PoolId

DEFAULT_POOL = PoolId("default")

Models = Iterable[Mapping[str, Any]]


class Fleet:
    """The backends, what they serve, and the pools that follow from it."""

    __slots__ = ("_default", "_models", "_names", "_pool_of_model", "_pools", "strangers")

    def __init__(self) -> None:
        self._models: dict[BackendId, dict[str, Mapping[str, Any]] | None] = {}
        self._pools: dict[BackendId, PoolId] = {}
        self._names: dict[BackendId, PoolId] = {}
        """Pools of those whose models are known."""
        self._pool_of_model: dict[str, PoolId] = {}
        self._default = DEFAULT_POOL
        self.strangers: dict[str | None, frozenset[BackendId]] = {}
        """By model, the backends of its pool that do not serve it; nothing for models that all of its pool serve.

        Always the same dict: whoever asks it for each turn may keep it.
        """

    def add(self, backend: BackendId) -> dict[BackendId, PoolId]:
        """Take in a backend whose models are not known yet; return the backends whose pool has changed."""
        self._models.setdefault(backend, None)
        return self._regroup()

    def remove(self, backend: BackendId) -> dict[BackendId, PoolId]:
        """Forget a backend; return the others whose pool has changed."""
        self._models.pop(backend, None)
        return self._regroup()

    def learn(self, backend: BackendId, models: Models) -> dict[BackendId, PoolId]:
        """Take in a backend's list of models, each with an ``id``; return the backends whose pool has changed.

        A backend that was never added, or has been removed since it was asked, is left out.
        """
        if backend not in self._models:
            return {}
        self._models[backend] = {str(model["id"]): model for model in models}
        return self._regroup()

    def pools(self) -> dict[PoolId, tuple[BackendId, ...]]:
        """Return the members of each pool, oldest first."""
        members: dict[PoolId, tuple[BackendId, ...]] = {}
        for backend in self._models:
            pool = self._pools[backend]
            members[pool] = (*members.get(pool, ()), backend)
        return members

    def pool_of(self, backend: BackendId) -> PoolId:
        """Return a backend's pool; raise ``KeyError`` for one that was never added."""
        return self._pools[backend]

    def resolve(self, model: str | None) -> PoolId | None:
        """Return the pool that serves ``model``; None where every backend's models are known and it is not there."""
        if model is None:
            return self._default
        if (pool := self._pool_of_model.get(model)) is not None:
            return pool
        every_list_known = bool(self._models) and None not in self._models.values()
        return None if every_list_known else self._default

    def models(self) -> list[Mapping[str, Any]]:
        """Return all models, one entry per id, as the oldest backend that serves it lists it."""
        merged: dict[str, Mapping[str, Any]] = {}
        for models in self._models.values():
            for name, model in (models or {}).items():
                merged.setdefault(name, model)
        return list(merged.values())

    def models_of(self, backend: BackendId) -> tuple[str, ...]:
        """Return the names of the models that a backend lists; none where they are not known."""
        return tuple(self._models.get(backend) or ())

    def _regroup(self) -> dict[BackendId, PoolId]:
        known = {backend: frozenset(models) for backend, models in self._models.items() if models is not None}
        groups = _components(known)
        names = self._name(groups)
        self._names = {backend: name for group, name in zip(groups, names, strict=True) for backend in group}
        self._default = names[0] if names else DEFAULT_POOL
        pools = {backend: self._names.get(backend, self._default) for backend in self._models}
        changed = {backend: pool for backend, pool in pools.items() if self._pools.get(backend) != pool}
        self._pools = pools
        self._pool_of_model = {name: pools[backend] for backend, models in known.items() for name in models}
        self.strangers.clear()
        for group in groups:
            self.strangers.update(_strangers({backend: known[backend] for backend in group}))
        return changed

    def _name(self, groups: list[list[BackendId]]) -> list[PoolId]:
        """Return a name for each group: the one that its oldest member had, or a new one after its oldest member."""
        kept: dict[int, PoolId] = {}
        for index, group in enumerate(groups):
            had = (self._names[backend] for backend in group if backend in self._names)
            name = next((name for name in had if name not in kept.values()), None)
            if name is not None:
                kept[index] = name
        taken = set(kept.values())
        for index, group in enumerate(groups):
            if index not in kept:
                # After a backend, not after a model: models come and go while it lives.
                kept[index] = _free(DEFAULT_POOL if index == 0 else PoolId(f"pool-{group[0]}"), group[0], taken)
                taken.add(kept[index])
        return [kept[index] for index in range(len(groups))]


def _strangers(served: Mapping[BackendId, frozenset[str]]) -> dict[str, frozenset[BackendId]]:
    """Return who does not serve a model, for those models of one pool that only some of it serve."""
    names = frozenset[str]().union(*served.values())
    by_all = names.intersection(*served.values())
    return {
        name: frozenset(backend for backend, models in served.items() if name not in models) for name in names - by_all
    }


def _free(name: PoolId, after: BackendId, taken: set[PoolId]) -> PoolId:
    """Return a name that no other pool has."""
    further = (PoolId(f"pool-{after}" if number == 1 else f"pool-{after}-{number}") for number in itertools.count(1))
    return next(one for one in itertools.chain([name], further) if one not in taken)


def _components(names: Mapping[BackendId, frozenset[str]]) -> list[list[BackendId]]:
    """Return the groups of backends that names connect, groups and members in order of first appearance."""
    groups: list[tuple[list[BackendId], frozenset[str]]] = []
    for backend, served in names.items():
        touching = [group for group in groups if group[1] & served]
        members = [member for group in touching for member in group[0]]
        merged = ([*members, backend], served.union(*(group[1] for group in touching)))
        groups = [group for group in groups if group not in touching]
        groups.append(merged)
    order = {backend: index for index, backend in enumerate(names)}
    listed = [sorted(members, key=order.__getitem__) for members, _ in groups]
    return sorted(listed, key=lambda group: order[group[0]])

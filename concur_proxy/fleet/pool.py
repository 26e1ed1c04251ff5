"""Which backends can stand in for each other. Pure.

Backends that share a model or adapter form a pool, directly or through others; held turns wait per pool. The pool of
the first backend whose models are known is the default: turns that name no model go there, and so do backends whose
models nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from concur_proxy.model import BackendId, PoolId

DEFAULT_POOL = PoolId("default")

Models = Iterable[Mapping[str, Any]]


class Fleet:
    """The backends, what they serve, and the pools that follow from it."""

    __slots__ = ("_models", "_pool_of_model", "_pools")

    def __init__(self) -> None:
        self._models: dict[BackendId, dict[str, Mapping[str, Any]] | None] = {}
        self._pools: dict[BackendId, PoolId] = {}
        self._pool_of_model: dict[str, PoolId] = {}

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
            return DEFAULT_POOL
        if (pool := self._pool_of_model.get(model)) is not None:
            return pool
        every_list_known = bool(self._models) and None not in self._models.values()
        return None if every_list_known else DEFAULT_POOL

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
        groups = _components({backend: frozenset(models or ()) for backend, models in self._models.items()})
        pools: dict[BackendId, PoolId] = {}
        leader = next((backend for backend, models in self._models.items() if models is not None), None)
        for group in groups:
            is_default = leader in group or self._models[group[0]] is None
            # Named after its oldest backend, not after a model: models come and go while it lives.
            name = DEFAULT_POOL if is_default else PoolId(f"pool-{group[0]}")
            pools |= dict.fromkeys(group, name)
        changed = {backend: pool for backend, pool in pools.items() if self._pools.get(backend) != pool}
        self._pools = pools
        self._pool_of_model = {
            name: pools[backend] for backend, models in self._models.items() for name in models or ()
        }
        return changed


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

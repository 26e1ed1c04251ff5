"""Who can stand in for a backend that leaves, or is kept back to be warmed."""

from types import SimpleNamespace

import pytest

from concur_proxy.fleet.pool import Fleet
from concur_proxy.model import BackendId
from concur_proxy.runtime.membership import NodePort

A = BackendId("a")


@pytest.mark.parametrize(
    ("served", "up", "has_one"),
    [
        ({"a": ["m"], "b": ["m"]}, "ab", True),
        ({"a": ["m"], "b": ["m"]}, "b", True),
        ({"a": ["m"], "b": ["m"]}, "a", False),
        ({"a": ["m"], "b": ["m", "adapter"]}, "ab", True),
        ({"a": ["m", "adapter"], "b": ["m"]}, "ab", False),
        ({"a": ["m", "adapter"], "b": ["m"], "c": ["adapter"]}, "abc", True),
        ({"a": ["m", "adapter"], "b": ["m"], "c": ["adapter"]}, "ab", False),
        ({"a": ["m"], "b": ["n"]}, "ab", False),
    ],
)
def test_others_stand_in_where_those_that_are_up_serve_all_of_its_models(served, up, has_one):
    fleet = Fleet()
    for backend, names in served.items():
        fleet.add(BackendId(backend))
        fleet.learn(BackendId(backend), [{"id": name} for name in names])
    members = fleet.pools()
    dispatcher = SimpleNamespace(up=lambda pool: [backend for backend in members[pool] if backend in up])
    assert NodePort(SimpleNamespace(fleet=fleet, dispatcher=dispatcher)).has_stand_in(A) is has_one

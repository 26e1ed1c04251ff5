from concur_proxy.control.roster import Roster
from concur_proxy.fleet.pool import DEFAULT_POOL, Fleet
from concur_proxy.model import BackendId

A, B = BackendId("a"), BackendId("b")


class Port:
    def __init__(self):
        self.pool, self.members = {}, {}

    def set_pool(self, backend, pool):
        self.pool[backend] = pool

    def set_members(self, pool, backends):
        self.members[pool] = tuple(backends)


def test_gate_and_dispatcher_follow_the_fleet():
    port = Port()
    roster = Roster(Fleet(), port)
    roster.add(A)
    roster.add(B)
    assert port.members == {DEFAULT_POOL: (A, B)}
    roster.learn(A, [{"id": "m"}])
    roster.learn(B, [{"id": "n"}])
    assert port.members == {DEFAULT_POOL: (A,), "pool-b": (B,)}
    assert port.pool == {A: DEFAULT_POOL, B: "pool-b"}
    roster.learn(B, [{"id": "m"}])
    assert port.members == {DEFAULT_POOL: (A, B), "pool-b": ()}
    assert port.pool[B] == DEFAULT_POOL
    roster.remove(A)
    assert port.members[DEFAULT_POOL] == (B,)

"""Counting many sessions takes a bounded share of the time."""

from concur_proxy.runtime.census import FREE_S, SHARE, Census


class Counted:
    def __init__(self, takes_s):
        self.now, self.takes_s, self.times = 0.0, takes_s, 0
        self.census = Census(self.count, clock=lambda: self.now)

    def count(self):
        self.now += self.takes_s
        self.times += 1
        return {"idle": self.times}


def test_what_is_cheap_is_always_fresh():
    counted = Counted(FREE_S / 2)
    assert [counted.census.states()["idle"] for _ in range(5)] == [1, 2, 3, 4, 5]


def test_what_is_dear_is_told_again_for_a_while():
    counted = Counted(0.05)
    for _ in range(10_000):
        counted.census.states()
        counted.now += 0.01
    assert counted.times * counted.takes_s <= 1.1 * SHARE * counted.now
    assert counted.times > 1

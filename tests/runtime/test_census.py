"""Counting many sessions lets others pass, and takes a bounded share of the time."""

import asyncio

import pytest

from concur_proxy.runtime.census import FEW, SHARE, Census, at_once, unhurried


class Counted:
    """Each count takes ten parts of ``part_s``."""

    def __init__(self, size, part_s=0.001):
        self.now, self.part_s, self.times = 0.0, part_s, 0
        self.census = Census(self.count, size=lambda: size, clock=lambda: self.now)

    def count(self):
        for _ in range(10):
            self.now += self.part_s
            yield None
        self.times += 1
        yield {"idle": self.times}


def test_few_are_always_counted_anew():
    counted = Counted(FEW)
    assert [counted.census.states()["idle"] for _ in range(5)] == [1, 2, 3, 4, 5]


def test_many_are_counted_in_the_background_for_a_share_of_the_time():
    counted = Counted(FEW + 1)

    async def ask_all_the_time():
        for _ in range(20_000):
            counted.census.states()
            counted.now += 0.001
            await asyncio.sleep(0)

    asyncio.run(ask_all_the_time())
    # A count goes on while ten others ask, so it seems to take twice its own time.
    assert 1 < counted.times <= 2 + SHARE * counted.now / 0.01
    assert counted.census.states()["idle"] == counted.times


def test_the_first_count_of_many_is_made_at_once():
    assert Counted(FEW + 1).census.states() == {"idle": 1}


def test_others_pass_between_the_parts():
    passed = []

    async def other():
        while True:
            passed.append(1)
            await asyncio.sleep(0)

    async def go():
        task = asyncio.create_task(other())
        result = await unhurried(iter([None] * 5 + [7]))
        task.cancel()
        return result

    assert asyncio.run(go()) == 7
    assert len(passed) >= 4


def test_work_without_a_result_is_a_mistake():
    with pytest.raises(ValueError, match="no result"):
        asyncio.run(unhurried(iter([None])))
    with pytest.raises(StopIteration):
        at_once(iter([None]))

"""Pacing by a clock that the test holds."""

import asyncio

from concur_proxy.sim.context import Context
from concur_proxy.sim.engine import Engine
from concur_proxy.sim.server.driver import MAX_LAG_S, Driver
from concur_proxy.sim.step import EngineConfig, Request, StepCost


class Clock:
    """Stands still, or takes a stride at each look."""

    def __init__(self, stride: float = 0.0):
        self.time = 100.0
        self.stride = stride

    def __call__(self) -> float:
        self.time += self.stride
        return self.time


def request(output: int, source: int = 1, prompt: int = 20) -> Request:
    context = Context(16)
    context.append(source, prompt + output)
    return Request(prompt, output, context.hashes, 0.0)


async def play(driver: Driver, requests: list[Request]) -> list[tuple[Request, int]]:
    """Run the driver until all of ``requests`` have ended; what the listener heard."""
    heard, over = [], asyncio.Event()

    def listener(job, count):
        heard.append((job, count))
        if all(job.generated == job.output_tokens for job in requests):
            over.set()

    driver.submit(requests, listener)
    task = asyncio.create_task(driver.run())
    async with asyncio.timeout(10):
        await over.wait()
    task.cancel()
    return heard


def driver_for(clock: Clock, step_s: float) -> Driver:
    return Driver(Engine(EngineConfig(65, StepCost(step_s, 0, 0, 0))), clock)


def test_each_token_is_told_once_and_in_order():
    driver = driver_for(Clock(stride=1.0), 0.001)
    short, long = request(2, 1), request(4, 2)
    heard = asyncio.run(play(driver, [short, long]))
    assert [count for _, count in heard] == [1] * 6
    assert [job for job, _ in heard] == [short, long, short, long, long, long]
    assert driver.engine.idle


def test_steps_follow_each_other_without_gaps_when_the_clock_is_a_little_late():
    step = MAX_LAG_S / 2
    driver = driver_for(Clock(stride=step / 10), step)
    job = request(8)
    asyncio.run(play(driver, [job]))
    gaps = driver.engine.stats.gap_s
    assert gaps.count == 7
    assert abs(gaps.sum - 7 * step) < 1e-9, "lateness of one step must not add to the next"


def test_a_host_that_slept_does_not_race_through_what_it_missed():
    driver = driver_for(Clock(stride=60.0), 0.001)
    job = request(3)
    asyncio.run(play(driver, [job]))
    assert job.last_token_at - job.first_token_at > 100


def test_nobody_hears_of_an_aborted_request():
    async def scenario():
        driver = driver_for(Clock(stride=1.0), 0.001)
        gone, staying = request(5, 1), request(5, 2)
        driver.submit([gone], lambda *_: heard.append(gone))
        driver.abort([gone])
        assert driver.engine.idle
        driver.abort([gone])
        await play(driver, [staying])

    heard = []
    asyncio.run(scenario())
    assert heard == []


def test_nothing_arrives_before_the_step_under_way_is_over():
    async def scenario():
        clock = Clock()
        driver = driver_for(clock, 10.0)
        driver.submit([request(2)], lambda *_: None)
        task = asyncio.create_task(driver.run())
        while driver.engine.running == 0:
            await asyncio.sleep(0)
        assert driver.now() == 100.0
        clock.time = 500.0
        assert driver.now() == 110.0
        task.cancel()

    asyncio.run(scenario())

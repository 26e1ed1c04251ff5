import asyncio
import json
import math
import time
from functools import partial

import pytest

from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.loop import PATIENCE, SHORTEST_GAP_S, ControlLoop
from concur_proxy.control.probe import Scrape
from concur_proxy.control.scraper import Scraper
from concur_proxy.control.target import EngineTarget
from concur_proxy.core.regulator import Bounds
from concur_proxy.engines.base import EngineSample
from concur_proxy.model import BackendEvent, BackendId, Outcome, SessionKey, TurnRecord
from tests.control.engines import FakeEngine, Page, eventually, metrics
from tests.control.gates import FakeGate, StepLaw, TokenLaw

A, B = BackendId("a"), BackendId("b")


class Stand:
    """A loop in virtual time, over a fake gate."""

    def __init__(self, *names, bounds=None, **options):
        self.now = 0.0
        self.gate = FakeGate()
        self.loop = ControlLoop(
            self.gate, StepLaw, period_s=1.0, clock=lambda: self.now, bounds=bounds or Bounds(), **options
        )
        for name in names or ("a",):
            self.loop.add(EngineTarget(BackendId(name), "http://x"))

    def step(self, now):
        self.now = now
        return self.loop.step(now)

    def scraped(self, now, name="a", **fields):
        self.now = now
        self.loop.scraped(Scrape(BackendId(name), "vllm", EngineSample(at=now, **fields)))

    @property
    def updates(self):
        return len(self.gate.resized)


def turn(outcome):
    return TurnRecord(A, SessionKey("", "s"), outcome, 0.0, 0.0, 1.0)


def test_a_new_backend_is_updated_at_once():
    stand = Stand("a", "b")
    stand.step(0.0)
    assert {backend for backend, _, _ in stand.gate.resized} == {A, B}


def test_nothing_to_do_without_backends():
    stand = Stand()
    stand.loop.remove(A)
    assert stand.step(0.0) == math.inf


def test_a_sample_is_used_when_it_comes_but_not_before_the_period_is_over():
    stand = Stand()
    stand.step(0.0)
    stand.scraped(0.75)
    assert stand.step(0.75) == 1.0
    assert stand.updates == 1
    stand.step(1.0)
    assert stand.updates == 2
    stand.step(2.0)
    assert stand.updates == 2
    stand.scraped(2.25)
    stand.step(2.25)
    assert stand.updates == 3


def test_without_samples_the_window_is_still_updated():
    stand = Stand()
    assert stand.step(0.0) == PATIENCE
    stand.step(PATIENCE)
    assert stand.updates == 2


def test_a_refusal_does_not_wait_for_the_period():
    stand = Stand()
    stand.step(0.0)
    stand.now = 0.5
    stand.loop.refused(A)
    stand.step(0.5)
    assert stand.updates == 2
    assert stand.loop.signals(A).rejections == 1
    stand.loop.refused(A)
    assert stand.step(0.5) == 0.5 + SHORTEST_GAP_S
    assert stand.updates == 2
    stand.step(0.5 + SHORTEST_GAP_S)
    assert stand.updates == 3


def test_finished_turns_wait_for_the_period_however_they_ended():
    stand = Stand()
    due = stand.step(0.0)
    for outcome in Outcome:
        stand.loop.finished(turn(outcome))
    assert stand.step(0.5) == due
    assert stand.updates == 1


def test_a_storm_of_refusals_is_one_update():
    stand = Stand()
    stand.step(0.0)
    stand.now = 0.5
    for _ in range(1000):
        stand.loop.refused(A)
        stand.step(0.5)
    assert stand.updates == 2


def test_a_failed_scrape_is_told_and_hurries_nothing():
    stand = Stand()
    stand.step(0.0)
    stand.scraped(1.0, running=3)
    stand.step(1.0)
    stand.loop.scraped(Scrape(A, "vllm", problem="HTML page at /metrics"))
    stand.step(2.0)
    assert stand.updates == 2
    status = stand.loop.status(now=4.0)[A]
    assert (status["scrape_error"], status["sample_age_s"], status["kind"]) == ("HTML page at /metrics", 3.0, "vllm")
    stand.scraped(5.0)
    assert stand.loop.status(now=5.0)[A]["scrape_error"] is None


def test_a_restart_flushes_the_gate():
    stand = Stand()
    stand.scraped(0.0, prompt_tokens=50)
    stand.scraped(1.0, prompt_tokens=5)
    assert stand.gate.events == [(A, BackendEvent.FLUSHED)]


def test_sleep_is_told_where_the_engine_tells_it():
    told = []
    stand = Stand(on_sleep=lambda *news: told.append(news))
    stand.scraped(0.0)
    stand.scraped(1.0, asleep=True)
    stand.scraped(2.0, asleep=False)
    assert told == [(A, True), (A, False)]


def test_a_law_that_fails_on_one_backend_leaves_the_others_alone():
    stand = Stand("a", "b")
    stand.step(0.0)
    stand.gate.bounds.pop(A)  # whatever goes wrong with it
    stand.step(PATIENCE)
    assert stand.gate.resized[-1] == (B, 12, False)


def test_what_comes_for_a_backend_that_is_gone_is_ignored():
    stand = Stand("a", "b")
    stand.loop.remove(A)
    stand.scraped(0.0)
    stand.loop.refused(A)
    stand.loop.finished(turn(Outcome.OVERLOADED))
    assert stand.loop.signals(A) is None
    assert stand.loop.history(A) == ()
    assert list(stand.loop.status(now=0.0)) == [B]


def test_another_law_is_swapped_in_at_once_and_for_backends_to_come():
    stand = Stand()
    stand.step(0.0)
    stand.now = 0.5
    stand.loop.set_law(partial(StepLaw, step=100.0))
    stand.step(0.5)
    assert stand.gate.window[A] == 111
    stand.loop.add(EngineTarget(B, "http://x"))
    stand.step(0.5)
    assert stand.gate.window[B] == 110


def test_a_law_that_cannot_be_built_changes_nothing():
    stand = Stand()

    def broken(**_):
        raise ValueError("beta must be below 1")

    with pytest.raises(ValueError, match="beta"):
        stand.loop.set_law(broken)
    stand.loop.add(EngineTarget(B, "http://x"))
    stand.step(0.0)
    assert (stand.gate.window[A], stand.gate.window[B]) == (11, 11)


def test_bounds_change_at_once_for_all_or_by_what_is_there():
    stand = Stand("a", "b")
    stand.step(0.0)
    stand.gate.window[B] = 40.0
    stand.now = 0.5
    stand.loop.set_bounds(Bounds(), of=lambda view: Bounds(1, view.window / 2))
    stand.step(0.5)
    assert (stand.gate.window[A], stand.gate.window[B]) == (5.5, 20)
    assert stand.gate.resized[-1] == (B, 20, True)
    stand.now = 0.75
    stand.loop.set_bounds(Bounds(1, 4))
    stand.step(0.75)
    assert (stand.gate.window[A], stand.gate.window[B]) == (4, 4)


def test_each_change_of_a_window_is_told_when_it_comes():
    moves = []
    stand = Stand("a", bounds=Bounds(1, 12), on_move=lambda *move: moves.append(move))
    for now in (0.0, 2.0, 4.0, 6.0):
        stand.step(now)
    assert moves == [(A, 10, 11), (A, 11, 12)]
    stand.loop.set_bounds(Bounds(1, 5))
    stand.step(8.0)
    assert moves[2:] == [(A, 12, 5)]


def test_another_unit_is_no_change_of_the_window():
    moves = []
    stand = Stand("a", on_move=lambda *move: moves.append(move))
    stand.step(0.0)
    stand.loop.set_law(partial(TokenLaw, start=5000.0, step=0.0))
    stand.step(2.0)
    assert stand.gate.window[A] == 5000
    assert moves == [(A, 10, 11)]


def test_a_window_by_hand_for_one_or_all():
    stand = Stand("a", "b")
    stand.step(0.0)
    stand.now = 0.5
    stand.loop.set_window(3.0, backend=A)
    stand.step(0.5)
    assert (stand.gate.window[A], stand.gate.window[B]) == (3, 11)
    assert stand.loop.status(now=0.5)[A]["set_by_operator"] is True
    stand.now = 0.75
    stand.loop.set_window(2.0)
    stand.step(0.75)
    assert (stand.gate.window[A], stand.gate.window[B]) == (2, 2)
    stand.loop.set_window(None)
    stand.step(2.0)
    assert (stand.gate.window[A], stand.gate.window[B]) == (3, 3)


def test_status_is_plain_json():
    stand = Stand(bounds=Bounds(1, math.inf))
    stand.scraped(0.0, running=2, kv_usage_max=0.5, kv_usage_mean=0.25, capacity_tokens=1000)
    stand.step(0.0)
    status = json.loads(json.dumps(stand.loop.status(now=1.5), allow_nan=False))["a"]
    assert status["window"] == 11
    assert status["reason"] == "plus 1"
    assert status["window_max"] is None
    assert status["capacity_tokens"] == 1000
    assert status["kv_usage_mean"] == 0.25
    assert status["signals"]["running"] == 2
    assert status["law"] == {"name": "step", "unit": "sessions", "step": 1.0, "limit": None}
    assert status["sample_age_s"] == 1.5


def test_status_before_the_first_sample():
    status = json.loads(json.dumps(Stand().loop.status(now=0.0), allow_nan=False))["a"]
    assert status["sample_age_s"] is None
    assert status["signals"]["age_s"] is None


def test_from_a_real_page_to_the_window_through_bad_times_and_back():
    """The whole side in real time: engine, scraper, loop and gate."""

    async def main():
        gate, fetch = FakeGate(), HttpFetch()
        loop = ControlLoop(gate, StepLaw, period_s=0.01, clock=time.monotonic, bounds=Bounds())
        scraper = Scraper(fetch, loop.scraped, interval_s=0.01, timeout_s=0.1, clock=time.monotonic)
        running = asyncio.create_task(loop.run())
        async with FakeEngine({"/metrics": metrics(running=3, prompt_tokens=100)}) as engine:
            loop.add(engine.target())
            scraper.add(engine.target())
            await eventually(lambda: loop.signals(A).running == 3)
            assert gate.capacity[A] == 16384
            for page in (Page("<html>"), Page(hang=True), Page(status=404), Page("other 1\n"), Page(reset=True)):
                engine.pages["/metrics"] = page
                await eventually(lambda: loop.status(now=time.monotonic())[A]["scrape_error"])
                gate.resized.clear()
                await eventually(lambda: gate.resized)
                engine.pages["/metrics"] = metrics(running=4, prompt_tokens=200)
                await eventually(lambda: not loop.status(now=time.monotonic())[A]["scrape_error"])
            assert gate.events == []
            engine.pages["/metrics"] = metrics(running=1, prompt_tokens=5)
            await eventually(lambda: gate.events == [(A, BackendEvent.FLUSHED)])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scraper.aclose()
        await fetch.aclose()

    asyncio.run(main())

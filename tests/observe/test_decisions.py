"""Which changes of a window are worth a line."""

import itertools
import math

import pytest

from concur_proxy.model import BackendId, ColdLane, PoolId
from concur_proxy.observe.decisions import DecisionLog

GPU = BackendId("gpu-0")


@pytest.fixture
def told(caplog):
    """Moves a window through the values given, and returns the lines about it."""

    def run(*windows: float) -> list[str]:
        log = DecisionLog()
        with caplog.at_level("INFO", "concur_proxy.observe.decisions"):
            for before, after in itertools.pairwise(windows):
                log.moved(GPU, before, after, unit="sessions", reason="the cache is full")
        return caplog.messages

    return run


def test_a_change_of_more_than_a_tenth_is_told_with_its_reason(told):
    assert told(10.0, 9.0, 8.9) == ["window of gpu-0: 10.0 to 8.9 sessions: the cache is full"]


def test_small_steps_add_up(told):
    assert len(told(100.0, 104.0, 108.0, 112.0, 116.0, 120.0)) == 1


def test_what_swings_around_one_value_is_not_told(told):
    assert told(100.0, 105.0, 98.0, 104.0, 96.0) == []


def test_from_no_window_to_one_and_back(told):
    assert told(math.inf, 64.0, math.inf) == [
        "window of gpu-0: inf to 64.0 sessions: the cache is full",
        "window of gpu-0: 64.0 to inf sessions: the cache is full",
    ]


def test_another_law_may_count_in_another_unit(caplog):
    log = DecisionLog()
    with caplog.at_level("INFO", "concur_proxy.observe.decisions"):
        log.moved(GPU, 40_000.0, 20_000.0, unit="tokens", reason="a")
        log.moved(GPU, 20_000.0, 20_500.0, unit="sessions", reason="b")
        log.moved(GPU, 20_500.0, 12.0, unit="sessions", reason="c")
    assert caplog.messages == [
        "window of gpu-0: 40,000 to 20,000 tokens: a",
        "window of gpu-0: 20,000 tokens to 20,500 sessions: b",
        "window of gpu-0: 20,500 to 12.0 sessions: c",
    ]


def test_what_becomes_of_batch_work_is_told_with_what_it_was_decided_by(caplog):
    with caplog.at_level("INFO", "concur_proxy.observe.decisions"):
        for becomes, p99_s in ((ColdLane.HELD, 3.456), (ColdLane.REFUSED, 4.0), (ColdLane.OPEN, None)):
            DecisionLog.cold_lane(PoolId("m"), becomes, p99_s, objective_s=2.0)
    held, refused, on = caplog.messages
    assert "held back" in held
    assert "p99 to the first token 3.46 s, objective 2 s" in held
    assert "refused" in refused
    assert "goes on: nobody asks for anything" in on
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]

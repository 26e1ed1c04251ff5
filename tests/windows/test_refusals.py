"""What an engine that refuses turns does to a window, and how it comes back."""

import math

import pytest

from concur_proxy.windows.base import Unit, Verdict
from concur_proxy.windows.refusals import CutOnRejection, TaperAfterRefusal
from tests.windows.cases import signals, view


def ask(guard, verdict, *, now=0.0, told=None, **seen):
    return guard.guard(Verdict(verdict, "law"), signals(**told or {}), view(**seen), now=now)


# the cut

REFUSED = {"rejections": 1.0}
UNREFUSED = {"rejections": 0.0}


@pytest.mark.parametrize(("running", "window"), [(10, 9.0), (16, 14.4), (20, 14.4), (1, 0.9), (0, 0.9)])
def test_a_refusal_cuts_below_what_runs(running, window):
    verdict = ask(CutOnRejection(Unit.SESSIONS), 20.0, told=REFUSED, running=running)
    assert verdict.window == pytest.approx(window)
    assert verdict.hard


def test_a_deeper_cut_of_the_law_is_kept():
    assert ask(CutOnRejection(Unit.SESSIONS), 8.0, told=REFUSED, running=16).window == 7.2


def test_an_unbounded_window_is_cut_too():
    assert ask(CutOnRejection(Unit.SESSIONS), math.inf, told=REFUSED, window=math.inf, running=10).window == 9


def test_a_window_of_tokens_is_cut_below_the_tokens_in_use():
    verdict = ask(CutOnRejection(Unit.TOKENS), 20000.0, told=REFUSED, window=16000.0, footprint_tokens=10000.0)
    assert verdict.window == 9000


@pytest.mark.parametrize("rejections", [None, 0.0])
def test_no_refusal_changes_nothing(rejections):
    assert ask(CutOnRejection(Unit.SESSIONS), 20.0, told={"rejections": rejections}) == Verdict(20.0, "law")


def test_the_limit_is_hard_and_does_not_grow_for_a_while():
    guard = CutOnRejection(Unit.SESSIONS)
    ask(guard, 16.0, told=REFUSED, running=10)
    verdict = ask(guard, 11.0, now=4.9, window=9.0, told=UNREFUSED)
    assert (verdict.window, verdict.hard) == (9.0, True)
    assert ask(guard, 4.0, now=4.9, window=9.0, told=UNREFUSED).window == 4.0
    assert ask(guard, 11.0, now=5.0, window=9.0, told=UNREFUSED) == Verdict(11.0, "law")


def test_refusals_that_go_on_cut_once_the_last_cut_has_drained():
    guard = CutOnRejection(Unit.SESSIONS)
    ask(guard, 16.0, told=REFUSED, running=10)
    for tenth in range(1, 40):
        verdict = ask(guard, 9.0, now=tenth / 10, window=9.0, told=REFUSED, running=10 if tenth < 20 else 9)
        assert (verdict.window, verdict.hard) == (9.0, True)
    assert ask(guard, 9.0, now=6.8, window=9.0, told=REFUSED, running=9).window == 9.0
    assert ask(guard, 9.0, now=6.9, window=9.0, told=REFUSED, running=9).window == pytest.approx(8.1)


# the way back


def come_back(guard, *, wish=1e6, seconds=60, per_second=1, told=UNREFUSED, start=20.0, at=0.0):
    window = start
    for count in range(1, seconds * per_second + 1):
        window = ask(guard, max(wish, window), now=at + count / per_second, window=window, told=told).window
    return window


def refused(window=100.0, cut=20.0):
    guard = TaperAfterRefusal()
    assert ask(guard, cut, now=0.0, window=window, told=REFUSED).window == cut
    return guard


@pytest.mark.parametrize("per_second", [1, 10])
def test_the_way_back_from_a_refusal_gets_slower(per_second):
    window = come_back(refused(), seconds=20, per_second=per_second)
    assert window == pytest.approx(100 - 80 * math.exp(-0.05 * 20))


def test_a_law_that_grows_more_slowly_is_left_alone():
    guard = refused()
    assert ask(guard, 21.0, now=1.0, window=20.0, told=UNREFUSED) == Verdict(21.0, "law")


def test_after_a_minute_without_refusals_it_is_forgotten():
    assert come_back(refused(), seconds=59) < 100
    assert come_back(refused(), seconds=60) == 1e6


def test_a_refusal_that_cuts_nothing_renews_it_only():
    guard = refused()
    window = come_back(guard, seconds=30, told=REFUSED)
    assert window == pytest.approx(100 - 80 * math.exp(-0.05 * 30))
    assert come_back(guard, seconds=59, start=window, at=30.0) < 100


def test_a_later_refusal_is_the_nearer_end():
    guard = refused()
    ask(guard, 10.0, now=10.0, window=40.0, told=REFUSED)
    assert come_back(guard, seconds=59, start=10.0, at=10.0) < 40


def test_no_refusal_no_taper():
    assert ask(TaperAfterRefusal(), 1000.0, told=UNREFUSED).window == 1000
    assert ask(refused(window=math.inf), 1000.0, now=1.0, window=20.0, told=UNREFUSED).window == 1000

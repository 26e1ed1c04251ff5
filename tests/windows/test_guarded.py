from concur_proxy.windows.base import Verdict
from concur_proxy.windows.guarded import Guarded
from tests.control.gates import StepLaw
from tests.windows.cases import record, signals, view


def step_law(**fields):
    return StepLaw(minimum=1.0, maximum=100.0, **fields)


class Times:
    def __init__(self, factor):
        self.factor = factor

    def guard(self, verdict, signals, view, *, now):
        return Verdict(verdict.window * self.factor, f"{verdict.reason} times {self.factor}", hard=True)


class Plus(Times):
    def guard(self, verdict, signals, view, *, now):
        return Verdict(verdict.window + self.factor, f"{verdict.reason} plus {self.factor}", hard=verdict.hard)


def test_guards_work_in_their_order():
    law = Guarded(step_law(), (Times(2), Plus(3)))
    assert law.update(signals(), view(16.0), now=0.0) == Verdict(37, "plus 1 times 2 plus 3", hard=True)


def test_the_bounds_have_the_last_word():
    law = Guarded(step_law(), (Times(100),))
    assert law.update(signals(), view(16.0, maximum=50.0), now=0.0).window == 50
    law = Guarded(step_law(), (Times(0),))
    assert law.update(signals(), view(16.0, minimum=3.0), now=0.0).window == 3


def test_an_old_sample_is_kept_from_the_law():
    inner = step_law()
    law = Guarded(inner, stale_after_s=10.0)
    law.update(signals(age_s=10.0, kv_usage=0.4), view(), now=0.0)
    law.update(signals(age_s=10.1, kv_usage=0.4, rejections=2.0), view(), now=0.0)
    assert [(told.kv_usage, told.rejections) for told, _, _ in inner.seen] == [(0.4, 0.0), (None, 2.0)]


def test_it_stands_for_its_law():
    inner = step_law(start=7.0)
    law = Guarded(inner)
    law.observe(record(), now=3.0)
    assert inner.records == [(record(), 3.0)]
    assert (law.name, law.unit, law.snapshot()) == (inner.name, inner.unit, inner.snapshot())
    assert law.start(capacity_tokens=None, typical_footprint_tokens=None) == 7.0

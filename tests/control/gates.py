"""A gate and a law with plain rules, for tests of what stands between them."""

import math
from typing import ClassVar

from concur_proxy.windows.base import Unit, Verdict, WindowView


class FakeGate:
    """Remembers what it was told, and shows it."""

    def __init__(self):
        self.window, self.unit, self.bounds, self.capacity = {}, {}, {}, {}
        self.events, self.resized = [], []
        self.active = 0

    def view(self, backend):
        minimum, maximum = self.bounds[backend]
        return WindowView(
            window=self.window[backend],
            minimum=minimum,
            maximum=maximum,
            active=self.active,
            running=2,
            held=1,
            bound=True,
            footprint_tokens=0.0,
            typical_footprint_tokens=None,
            records_age_s=0.0,
        )

    def resize(self, backend, window, *, hard=False):
        self.window[backend] = window
        self.resized.append((backend, window, hard))

    def set_unit(self, backend, unit, window):
        self.unit[backend], self.window[backend] = unit, window

    def set_bounds(self, backend, minimum, maximum):
        self.bounds[backend] = (minimum, maximum)

    def set_capacity(self, backend, tokens):
        self.capacity[backend] = tokens

    def backend_event(self, backend, event):
        self.events.append((backend, event))


class StepLaw:
    """Adds ``step`` to the window; keeps all that it was told."""

    name: ClassVar[str] = "step"
    unit = Unit.SESSIONS

    def __init__(self, *, minimum, maximum, step=1.0, start=10.0):
        self.minimum, self.maximum, self.step, self.first = minimum, maximum, step, start
        self.seen, self.records, self.starts = [], [], []
        self.fails = False

    def start(self, *, capacity_tokens, typical_footprint_tokens):
        self.starts.append(capacity_tokens)
        return self.first

    def observe(self, record, *, now):
        if self.fails:
            raise ZeroDivisionError
        self.records.append((record, now))

    def update(self, signals, view, *, now):
        if self.fails:
            raise ZeroDivisionError
        self.seen.append((signals, view, now))
        return Verdict(view.window + self.step, f"plus {self.step:g}")

    def snapshot(self):
        return {"step": self.step, "limit": math.inf}


class TokenLaw(StepLaw):
    name: ClassVar[str] = "tokens"
    unit = Unit.TOKENS

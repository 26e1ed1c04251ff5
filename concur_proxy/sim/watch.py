"""The control side of one backend in virtual time: scrape, wait for the page, let the regulator move the window."""

from __future__ import annotations

from functools import partial
from random import Random

from concur_proxy.core.regulator import Regulator
from concur_proxy.engines.base import EngineSample
from concur_proxy.sim.events import Events
from concur_proxy.sim.gauges import read
from concur_proxy.sim.runner import Runner
from concur_proxy.sim.scenario import SignalsPart
from concur_proxy.sim.series import Series

PATIENCE = 0.5
"""Of a period: a sample that is late is not waited for longer (``control.loop``)."""


class Watch:
    """Updates once in every scrape interval, with the new sample where there is one."""

    def __init__(
        self, runner: Runner, regulator: Regulator, signals: SignalsPart, events: Events, series: Series, random: Random
    ) -> None:
        self.runner = runner
        self.regulator = regulator
        self.series = series
        self.sees = signals.metrics
        self.capacity = float(runner.engine.pool.total * runner.engine.pool.block_size)
        self._signals = signals
        self._events = events
        self._random = random
        self._generated = 0
        self._hurries = False

    def start(self) -> None:
        """Read the metrics for the first time, before anything runs."""
        if self.sees:
            self.regulator.sample(self._read())
        self._schedule()

    def _schedule(self) -> None:
        self.runner.next_reading_at = self._events.now + self._signals.interval_s
        self._events.at(self.runner.next_reading_at, self._scrape)

    def _read(self) -> EngineSample:
        return read(self.runner, self._signals, self.capacity, self._random, now=self._events.now)

    def _scrape(self) -> None:
        signals = self._signals
        self.runner.catch_up()
        self._generated = self.runner.generated_tokens
        if self.sees and self.runner.up:
            sample = self._read()
            if signals.delay_s:
                self._events.after(signals.delay_s, partial(self._told, sample))
            else:
                self._told(sample)
        else:
            self._events.after(PATIENCE * signals.interval_s, self._update)
        self._schedule()

    def refused(self) -> None:
        """The engine has refused a turn: the window moves at once."""
        self.regulator.tracker.refused()
        if not self._hurries:
            self._hurries = True
            self._events.at(self._events.now, self._hurry, last=True)

    def _hurry(self) -> None:
        self._hurries = False
        self._update()

    def _told(self, sample: EngineSample) -> None:
        self.regulator.sample(sample)
        self._update()

    def _update(self) -> None:
        self.regulator.update(now=self._events.now)
        self.series.note(self.regulator, self._generated)

"""Calls that go past the proxy: straight to the engines of a pool, in turns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from concur_proxy.model import PoolId
from concur_proxy.sim.events import Events
from concur_proxy.sim.front import Call
from concur_proxy.sim.runner import End, Runner

RECONNECT_S = 1.0


class Past:
    """Each session's calls go to one engine, as a client with one URL would send them."""

    def __init__(self, pools: Mapping[PoolId, Sequence[Runner]], events: Events) -> None:
        self._events = events
        self._next: dict[PoolId, Iterator[Runner]] = {name: itertools.cycle(some) for name, some in pools.items()}
        self._homes: dict[str, Runner] = {}

    def ask(self, call: Call) -> None:
        session = call.facts.session
        name = session.id if session is not None else ""
        if name not in self._homes or call.facts.is_retry:
            self._homes[name] = next(self._next[call.facts.pool])
        runner = call.runner = self._homes[name]
        call.request = call.make_request(self._events.now)
        if runner.up:
            runner.submit(call.request, partial(self._ended, call))
        else:
            self._events.after(0.0, partial(self._ended, call, End.LOST))

    def cancel(self, call: Call) -> None:
        assert call.runner is not None
        assert call.request is not None
        call.runner.abort(call.request)

    def _ended(self, call: Call, end: End) -> None:
        if end is End.COMPLETE:
            call.on_answer(call)
        else:
            call.on_failure(call, "overloaded" if end is End.REFUSED else "backend_lost", RECONNECT_S)

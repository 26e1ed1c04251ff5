"""Scrapes one engine once: which page to ask, what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from concur_proxy.control.ports import Clock, Fetch, Reply, Unreached
from concur_proxy.control.reading import Found, Source, document, sources
from concur_proxy.control.target import EngineTarget
from concur_proxy.engines import sglang
from concur_proxy.engines.base import EngineSample
from concur_proxy.engines.ranks import of_rank
from concur_proxy.model import BackendId


@dataclass(frozen=True, slots=True)
class Scrape:
    """The outcome of one scrape: a sample, or a problem in plain words."""

    backend: BackendId
    kind: str | None
    sample: EngineSample | None = None
    problem: str | None = None


class EngineProbe:
    """Scrapes one backend: finds the page that works, keeps to it, and asks for the capacity where no page tells it."""

    __slots__ = ("_capacity", "_capacity_asked", "_fetch", "_good", "_timeout_s", "kind", "target")

    def __init__(self, target: EngineTarget, fetch: Fetch, *, timeout_s: float) -> None:
        self.target = target
        self.kind = target.kind
        self._fetch = fetch
        self._timeout_s = timeout_s
        self._good: Source | None = None
        self._capacity: float | None = None
        self._capacity_asked = False

    async def scrape(self, *, clock: Clock) -> Scrape:
        """Ask the pages in order until one gives a sample; the problem told is that of the first."""
        problem: str | None = None
        for source in self._in_order():
            asked = clock()
            reply = await self._fetch(self.target, source.path, timeout_s=self._timeout_s)
            if isinstance(reply, Unreached):
                problem = problem or f"{source.path}: {reply.reason}"
                break
            result = source.result(reply, self.target, at=asked)
            if isinstance(result, Found):
                self._good, self.kind = source, result.kind
                return Scrape(self.target.backend, result.kind, sample=await self._with_capacity(result))
            problem = problem or result.words
        self._capacity_asked = False  # what comes up again may be another engine
        return Scrape(self.target.backend, self.kind, problem=problem)

    def _in_order(self) -> Iterator[Source]:
        """What worked last time comes first."""
        good = self._good
        if good is not None:
            yield good
        for source in sources(self.target):
            if source != good:
                yield source

    async def _with_capacity(self, found: Found) -> EngineSample:
        """Older SGLang tells its capacity in ``/server_info`` only; ask once after every failure."""
        sample = found.sample
        if found.kind != "sglang" or sample.capacity_tokens is not None:
            return sample
        if not self._capacity_asked:
            self._capacity_asked = True
            self._capacity = await self._ask_capacity()
        return replace(sample, capacity_tokens=self._capacity)

    async def _ask_capacity(self) -> float | None:
        for path in sglang.INFO_PATHS:
            reply = await self._fetch(self.target, path, timeout_s=self._timeout_s)
            if isinstance(reply, Reply) and reply.status == 200:
                told = document(reply.text)
                return sglang.read_capacity(told if self.target.rank is None else of_rank(told, self.target.rank))
        return None

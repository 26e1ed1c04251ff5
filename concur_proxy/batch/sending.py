"""Plays one line: sends it the way of all turns, again where that may help, until there is something to write down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

from concur_proxy.batch import lines
from concur_proxy.batch.lines import Problem
from concur_proxy.batch.records import Answer, Claim
from concur_proxy.gateway.headers import HeaderList, ResponseHead
from concur_proxy.gateway.hints import COLD_HEADER

LATER = frozenset({429, 503})
"""Nothing was done yet: this is tried until the batch's time is over."""
BROKEN = frozenset({502, 504})
"""The engine may have died of it: this is tried ``MAX_BROKEN`` times in all."""
MAX_BROKEN = 3
BROKEN_OFF = "The engine did not bring its answer to an end, in several tries."
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0


class BrokenOffError(OSError):
    """An answer ended in its middle: the engine died of it, or with it."""


class Way(Protocol):
    """The way into the data path."""

    async def post(self, path: str, headers: HeaderList, body: bytes) -> tuple[ResponseHead, bytes]:
        """Return the whole answer; OSError where none comes, BrokenOffError where only a part of it does."""
        ...


class Sender:
    """Sends the lines of one batch. ``identity``: the headers that say whose batch it is."""

    def __init__(
        self,
        batch: str,
        endpoint: str,
        identity: HeaderList,
        session_headers: tuple[str, ...],
        way: Way,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._batch = batch
        self._endpoint = endpoint
        self._identity = identity
        self._session_headers = session_headers
        self._way = way
        self._sleep = sleep
        self.on_close: Callable[[], None] = lambda: None
        self._chance = Random(batch)  # so that lines that were refused together do not come back together

    async def play(self, claim: Claim) -> Answer:
        """Return what the line came to."""
        line = lines.read(claim.request, self._endpoint, self._session_headers)
        if isinstance(line, Problem):  # it was in order once: a setting has changed, or the store is damaged
            return lines.unanswered(self._batch, claim.number, claim.custom_id, line.code, line.message)
        broken = 0
        for attempt in range(1 << 30):
            try:
                head, body = await self._way.post(self._endpoint, self._headers(claim, line, attempt), line.body)
            except OSError as error:
                broken += isinstance(error, BrokenOffError)
                if broken >= MAX_BROKEN:
                    return lines.unanswered(self._batch, claim.number, claim.custom_id, "broken_off", BROKEN_OFF)
                await self._sleep(self._pause(attempt))
                continue
            broken += head.status in BROKEN
            if head.status not in LATER and (head.status not in BROKEN or broken >= MAX_BROKEN):
                return lines.answered(self._batch, claim.number, claim.custom_id, head.status, body)
            await self._sleep(max(self._pause(attempt), retry_after_s(head)))
        raise AssertionError("an endless loop has ended")

    def _headers(self, claim: Claim, line: lines.Line, attempt: int) -> HeaderList:
        headers = [*self._identity, (b"content-type", b"application/json"), (COLD_HEADER.encode(), b"1")]
        headers.append((b"x-request-id", lines.request_id(self._batch, claim.number).encode()))
        headers += [(name.encode(), value.encode()) for name, value in line.headers.items()]
        if line.session is None:
            headers.append((b"x-session-final", b"true"))  # nothing follows, whatever its messages look like
        if attempt:
            headers.append((b"x-stainless-retry-count", b"%d" % attempt))  # keeps its place in line
        return headers

    def _pause(self, attempt: int) -> float:
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(attempt, 10)))
        return longest * self._chance.uniform(0.5, 1.0)


def retry_after_s(head: ResponseHead) -> float:
    """Return what an answer says about when to come back; 0 where it says nothing that can be used."""
    for name, unit in ((b"retry-after-ms", 1000.0), (b"retry-after", 1.0)):
        try:
            seconds = float(head.value(name)) / unit
        except ValueError:
            continue
        if 0 <= seconds < math.inf:
            return min(seconds, LONGEST_PAUSE_S)
    return 0.0

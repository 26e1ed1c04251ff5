"""What is known of one backend, or of all, at one time. NaN is unknown, infinity a window without end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

UNKNOWN = math.nan


class Moment(NamedTuple):
    """Levels are those at the moment; rates are means since the moment before."""

    window_sessions: float = UNKNOWN
    """The window, where the law counts sessions."""
    window_tokens: float = UNKNOWN
    """The window, where the law counts tokens."""
    active: float = UNKNOWN
    """Sessions that hold a place."""
    running: float = UNKNOWN
    """Turns in flight."""
    held: float = UNKNOWN
    """Turns that wait in the proxy: for this backend, or for others of its pool."""
    queued: float = UNKNOWN
    """Requests that wait inside the engine."""
    footprint_tokens: float = UNKNOWN
    """Tokens of KV that active sessions occupy."""
    capacity_tokens: float = UNKNOWN
    """Tokens that the KV cache holds."""
    kv_usage: float = UNKNOWN
    """Share of KV blocks that running requests hold, 0 to 1."""
    queried_tokens_per_s: float = UNKNOWN
    """Prompt tokens that were looked up in the prefix cache."""
    hit_tokens_per_s: float = UNKNOWN
    """Those of them that were found."""
    prompt_tokens_per_s: float = UNKNOWN
    generated_tokens_per_s: float = UNKNOWN
    recomputed_tokens_per_s: float = UNKNOWN
    """Prompt tokens that should have been cached and were not."""
    congestion: float = UNKNOWN
    """The law's congestion signal, where it has one."""
    threshold: float = UNKNOWN
    """What the law compares it with."""

    @property
    def hit_rate(self) -> float:
        """Cached over processed prompt tokens, 0 to 1; unknown where none was processed."""
        queried = self.queried_tokens_per_s
        return min(self.hit_tokens_per_s / queried, 1.0) if queried > 0 else UNKNOWN


def altogether(moments: Sequence[Moment]) -> Moment:
    """Return the moment of several backends together: sums, and usage as their caches' sizes weigh it.

    Each backend's law has a congestion signal of its own; together they have none. Backends of a pool have one line of
    waiting turns, which must not count once for each of them.
    """
    if not moments:
        return Moment()
    sums = Moment(*map(_sum, zip(*moments, strict=True)))
    sums = sums._replace(held=UNKNOWN, congestion=UNKNOWN, threshold=UNKNOWN, kv_usage=_usage(moments))
    return sums if len(moments) > 1 else moments[0]


def mean(moments: Sequence[Moment]) -> Moment:
    """Return the mean of what is known of one backend at several times."""
    return Moment(*map(_mean, zip(*moments, strict=True)))


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _over(reduce: Callable[[list[float]], float]) -> Callable[[Iterable[float]], float]:
    def reduced(values: Iterable[float]) -> float:
        known = _known(values)
        return reduce(known) if known else UNKNOWN

    return reduced


_sum = _over(sum)
_mean = _over(lambda known: sum(known) / len(known))


def _usage(moments: Sequence[Moment]) -> float:
    """Pools of unknown size count alike."""
    told = [moment for moment in moments if not math.isnan(moment.kv_usage)]
    if not told:
        return UNKNOWN
    sized = all(moment.capacity_tokens > 0 for moment in told)
    weights = [moment.capacity_tokens if sized else 1.0 for moment in told]
    return sum(moment.kv_usage * weight for moment, weight in zip(told, weights, strict=True)) / sum(weights)

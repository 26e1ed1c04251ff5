"""From an engine's answer to a sample, or to plain words about what was wrong. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from concur_proxy.control.ports import Reply
from concur_proxy.control.target import EngineTarget
from concur_proxy.engines import sglang
from concur_proxy.engines.base import EngineSample
from concur_proxy.engines.exposition import Unreadable, read_page
from concur_proxy.engines.ranks import RankPage, of_rank
from concur_proxy.engines.registry import ENGINES, detect


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no sample, in words for an operator."""

    words: str


@dataclass(frozen=True, slots=True)
class Found:
    """A sample, and the kind of engine that it is from."""

    kind: str
    sample: EngineSample


@dataclass(frozen=True, slots=True)
class Source:
    """A page that may tell an engine's load. ``read`` takes path, text, target, and time."""

    path: str
    read: Callable[[str, str, EngineTarget, float], Found | Problem]

    def result(self, reply: Reply, target: EngineTarget, *, at: float) -> Found | Problem:
        """Return what an answer to a question asked at ``at`` says."""
        wrong = status_words(self.path, reply.status, target)
        if wrong is None:
            return self.read(self.path, reply.text, target, at)
        return Problem(wrong + (_hint(target.kind) if reply.status == 404 else ""))


def sources(target: EngineTarget) -> tuple[Source, ...]:
    """Return the pages to try, best first."""
    kind = target.kind
    if kind == "none":
        return ()
    if target.metrics_url is not None:
        return (Source(target.metrics_url, _metrics),)
    engines = [ENGINES[kind]] if kind else ENGINES.values()
    paths = dict.fromkeys(engine.metrics_path for engine in engines if engine.metrics_path)
    loads = (Source(sglang.LOADS_PATH, _loads),) if kind in (None, "sglang") else ()
    return (*(Source(path, _metrics) for path in paths), *loads)


def status_words(path: str, status: int, target: EngineTarget) -> str | None:
    """Return what a status other than 200 means for this page, None for 200."""
    if status == 200:
        return None
    if status == 404:
        return f"{path} is missing (404)"
    if status in (401, 403):
        known = "its api_key is refused" if target.api_key else "set the backend's api_key"
        return f"{path} needs authorization ({status}): {known}"
    if 300 <= status < 400:
        return f"{path} redirects ({status}): set the backend's metrics_url"
    return f"{path} answers {status}"


def document(text: str) -> Any:
    """Return the JSON value; None where it is none, or has half a character in it, which could not be told on."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def _metrics(path: str, text: str, target: EngineTarget, at: float) -> Found | Problem:
    page, kind = read_page(text), target.kind
    if isinstance(page, Unreadable):
        return Problem(f"{page.reason} at {path}")
    if target.rank is not None:
        page = RankPage(page.series, page.bad_lines, rank=target.rank)
    seen = detect(page)
    if seen is None:
        return Problem(f"no {kind or 'known engine'} series at {path}{_hint(kind)}")
    if kind is not None and seen != kind:
        return Problem(f"{path} has series of {seen}, not of {kind}")
    read = ENGINES[seen].read
    assert read is not None, "only kinds that have series are detected"
    return Found(seen, read(page, at))


def _loads(path: str, text: str, target: EngineTarget, at: float) -> Found | Problem:
    told = document(text)
    sample = sglang.read_loads(told if target.rank is None else of_rank(told, target.rank), at)
    return Found("sglang", sample) if sample is not None else Problem(f"no load figures at {path}")


def _hint(kind: str | None) -> str:
    hint = ENGINES[kind].enable_hint if kind else ""
    return f": {hint}" if hint else ""

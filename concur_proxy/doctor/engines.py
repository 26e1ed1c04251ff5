"""The rules about engines. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from concur_proxy.doctor.facts import EngineFacts
from concur_proxy.doctor.findings import Finding, Weight
from concur_proxy.engines.registry import ENGINES


@dataclass(frozen=True, slots=True)
class Seen:
    """An engine, and what the proxy in front of it makes of it."""

    engine: EngineFacts
    window_sessions: float | None = None
    """The window, where it counts sessions and has an end."""
    capacity_known: bool = False
    """The proxy knows the cache's size, from whom ever."""
    keepalive_s: float = 4.0
    """How long the proxy keeps idle connections."""


Rule = Callable[[Seen], Iterator[Finding]]

CACHING: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prefix-caching, or without --no-enable-prefix-caching",
    "sglang": "start SGLang without --disable-radix-cache",
}
DETAILS: Mapping[str, str] = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}
SEATS: Mapping[str, str] = {
    "vllm": "raise --max-num-seqs",
    "sglang": "raise --max-running-requests",
    "llamacpp": "raise --parallel",
}
IDLE_USAGE = 0.9
"""A cache that is less full than this is not what requests wait for."""


def judge(seen: Seen) -> list[Finding]:
    """Return everything that is to be said about an engine."""
    return [finding for rule in RULES for finding in rule(seen)]


def _by(seen: Seen, remedies: Mapping[str, str], otherwise: str) -> str:
    return remedies.get(seen.engine.kind or "", otherwise)


def metrics_off(seen: Seen) -> Iterator[Finding]:
    engine = seen.engine
    if engine.metrics_problem is None or engine.kind == "none":
        return
    known = ENGINES.get(engine.kind or "")
    hints = [kind.enable_hint for kind in ENGINES.values() if kind.enable_hint]
    remedy = known.enable_hint if known and known.enable_hint else "; ".join(hints)
    what = f"its metrics cannot be read ({engine.metrics_problem}): the window is steered by answers alone"
    yield Finding("metrics-off", Weight.MISSING, engine.name, what, remedy)


def asleep(seen: Seen) -> Iterator[Finding]:
    sample = seen.engine.sample
    if sample is not None and sample.asleep:
        yield Finding(
            "asleep",
            Weight.WRONG,
            seen.engine.name,
            "it sleeps and gets no turns",
            "wake it: POST /wake_up at the engine",
        )


def no_models(seen: Seen) -> Iterator[Finding]:
    engine = seen.engine
    if engine.models_problem is not None:
        what = f"its list of models cannot be read ({engine.models_problem}): turns for a model may not find it"
        yield Finding(
            "models-unknown", Weight.WRONG, engine.name, what, "let /v1/models be read, with the backend's api_key"
        )
    elif engine.model is None:
        yield Finding("no-model", Weight.WRONG, engine.name, "it lists no model", "load one")


def caching_off(seen: Seen) -> Iterator[Finding]:
    if _is_off(seen):
        what = (
            "prefix caching is off: every turn computes its whole context again, and nothing that the proxy does helps"
        )
        remedy = _by(seen, CACHING, "switch prefix caching on")
        yield Finding("prefix-caching-off", Weight.WRONG, seen.engine.name, what, remedy)


def _is_off(seen: Seen) -> bool:
    """By what the engine says; else by a prompt that it has just seen and tells to have found nothing of."""
    told, warmth = seen.engine.limits.prefix_caching, seen.engine.warmth
    return told is False or (told is None and warmth is not None and warmth.tells and warmth.cached_tokens == 0)


def no_answer(seen: Seen) -> Iterator[Finding]:
    warmth = seen.engine.warmth
    if warmth is not None and warmth.problem is not None:
        what = f"a tiny request failed ({warmth.problem}): whether it tells cached tokens is not known"
        yield Finding("no-answer", Weight.WRONG, seen.engine.name, what, "see its log, or go without: --no-requests")


def untold(seen: Seen) -> Iterator[Finding]:
    warmth = seen.engine.warmth
    if warmth is None or warmth.problem is not None or warmth.tells or _is_off(seen):
        return
    what = "answers do not tell how many prompt tokens were cached: what was evicted, and whose, stays unknown"
    remedy = _by(seen, DETAILS, "have usage.prompt_tokens_details.cached_tokens reported")
    yield Finding("cached-tokens-untold", Weight.MISSING, seen.engine.name, what, remedy)


def capacity_unknown(seen: Seen) -> Iterator[Finding]:
    sample = seen.engine.sample
    if not seen.capacity_known and (sample is None or sample.capacity_tokens is None):
        what = "nobody knows how many tokens its KV cache holds: the law learns it slowly, from what gets lost"
        yield Finding("capacity-unknown", Weight.MISSING, seen.engine.name, what, "set kv_tokens of this backend")


def few_seats(seen: Seen) -> Iterator[Finding]:
    engine, most = seen.engine, seen.engine.limits.max_running
    if most is not None and seen.window_sessions is not None and most < int(seen.window_sessions):
        what = (
            f"it runs {most} requests at once at most, below the window of {seen.window_sessions:.0f} sessions: "
            "turns that the proxy lets in wait in the engine"
        )
        remedy = _by(seen, SEATS, "let it run more requests") + ", or set control.window_max"
        yield Finding("few-seats", Weight.WRONG, engine.name, what, remedy)
    elif most is None and _queues_beside_room(seen):
        sample = engine.sample
        assert sample is not None
        what = (
            f"{sample.waiting:.0f} requests wait in it, {sample.running:.0f} run, and its cache is not full: "
            "it runs no more at once"
        )
        yield Finding("few-seats", Weight.WRONG, engine.name, what, _by(seen, SEATS, "let it run more requests"))


def _queues_beside_room(seen: Seen) -> bool:
    samples = seen.engine.samples
    waited = bool(samples) and all((sample.waiting or 0) > 0 and (sample.running or 0) > 0 for sample in samples)
    roomy = all(sample.kv_usage_max is not None and sample.kv_usage_max < IDLE_USAGE for sample in samples)
    return waited and roomy and len({sample.running for sample in samples}) == 1


def impatient(seen: Seen) -> Iterator[Finding]:
    closes = seen.engine.closes_after_s
    if closes is not None and closes < seen.keepalive_s:
        what = (
            f"it closes idle connections after {closes:.1f} s, the proxy keeps them for {seen.keepalive_s:g} s: "
            "turns meet closed connections and are sent again"
        )
        flag = "set VLLM_HTTP_TIMEOUT_KEEP_ALIVE to 5 or more, or " if seen.engine.kind == "vllm" else ""
        remedy = f"{flag}set upstream.keepalive_s below {closes:.1f}"
        yield Finding("keepalive-short", Weight.WRONG, seen.engine.name, what, remedy)


RULES: tuple[Rule, ...] = (
    metrics_off,
    asleep,
    no_models,
    caching_off,
    no_answer,
    untold,
    capacity_unknown,
    few_seats,
    impatient,
)

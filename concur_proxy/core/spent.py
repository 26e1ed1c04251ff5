"""What an answer's own words mean: its usage object and its finish reason, in any of the APIs."""

from __future__ import annotations

from typing import Final

from concur_proxy.model import FinishReason, Usage

_REASONS: Final = {
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), FinishReason.TOOL_CALLS),
    **dict.fromkeys(("stop", "end_turn", "stop_sequence"), FinishReason.STOP),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), FinishReason.LENGTH),
}
PROMPT: Final[tuple[str, ...]] = ("prompt_tokens", "input_tokens")
COMPLETION: Final[tuple[str, ...]] = ("completion_tokens", "output_tokens")


def reason_of(word: str) -> FinishReason:
    """Return what a finish or stop reason of any of the APIs means."""
    return _REASONS.get(word, FinishReason.OTHER)


def read_usage(told: dict[str, object]) -> Usage | None:
    """Read a usage object of any of the APIs; None where it does not tell the prompt's tokens.

    Anthropic's ``input_tokens`` are what neither came from the cache nor was written to it: the prompt is their sum.
    """
    prompt = _first(told, PROMPT)
    if prompt is None:
        return None
    completion = _first(told, COMPLETION) or 0
    read, written = count_of(told.get("cache_read_input_tokens")), count_of(told.get("cache_creation_input_tokens"))
    if read is not None or written is not None:
        return Usage(prompt + (read or 0) + (written or 0), completion, read)
    cached = _cached(told)
    return Usage(prompt, completion, None if cached is None else min(cached, prompt))


def _cached(told: dict[str, object]) -> int | None:
    for name in ("prompt_tokens_details", "input_tokens_details"):
        details = told.get(name)
        if isinstance(details, dict) and (cached := count_of(details.get("cached_tokens"))) is not None:
            return cached
    return count_of(told.get("cached_tokens"))


def _first(told: dict[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        count = count_of(told.get(name))
        if count is not None:
            return count
    return None


def count_of(value: object) -> int | None:
    """Return a plausible number of tokens; None for anything else."""
    return value if type(value) is int and 0 <= value < 1 << 53 else None

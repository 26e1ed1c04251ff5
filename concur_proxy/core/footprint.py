"""How many tokens of KV a turn will need, before the engine has counted them."""

from __future__ import annotations

from concur_proxy.core.statistics import Mean
from concur_proxy.model import TurnFacts, Usage

TOKENS_PER_BYTE = 0.25
"""Where estimates start: English text and code have about four bytes to a token."""

OUTPUT_TOKENS = 256.0
MEDIA_TOKENS_PER_BYTE = 0.002
BLOCK_TOKENS = 16


class FootprintEstimator:
    """Learns tokens per byte, output length, and how much of an unchanged history engines find in their cache."""

    __slots__ = ("_output", "_reuse", "_tokens_per_byte")

    def __init__(self) -> None:
        self._tokens_per_byte = Mean(TOKENS_PER_BYTE)
        self._output = Mean(OUTPUT_TOKENS)
        self._reuse = Mean(1.0)

    def output_tokens(self, turn: TurnFacts) -> float:
        """Return the expected output of all choices, never more than the client allows."""
        one = self._output.value
        if turn.max_output_tokens is not None:
            one = min(one, float(turn.max_output_tokens))
        return one * max(1, turn.choices)

    def footprint(self, turn: TurnFacts, known: float | None) -> float:
        """Return the tokens that the turn will occupy; ``known``: the session's footprint after its last turn."""
        text = max(0, turn.body_bytes - turn.media_bytes)
        prompt = text * self._tokens_per_byte.value + turn.media_bytes * MEDIA_TOKENS_PER_BYTE
        return max(1.0, max(prompt, known or 0.0) + self.output_tokens(turn))

    def expected_cached(self, history: float, prompt_tokens: int) -> int:
        """Return the tokens that an undisturbed cache would give: unchanged history by learned reuse, whole blocks."""
        tokens = min(history, float(prompt_tokens)) * self._reuse.value
        return int(tokens) // BLOCK_TOKENS * BLOCK_TOKENS

    def learn(self, turn: TurnFacts, usage: Usage, *, history: float | None, was_warm: bool) -> None:
        """Take in what the engine counted. Reuse is learned from warm turns only: a miss says nothing about it."""
        text = turn.body_bytes - turn.media_bytes
        if text > 0 and not turn.media_bytes and usage.prompt_tokens:
            self._tokens_per_byte.add(min(2.0, usage.prompt_tokens / text))
        if usage.completion_tokens:
            self._output.add(usage.completion_tokens / max(1, turn.choices))
        if was_warm and history and usage.cached_tokens:
            self._reuse.add(min(1.0, usage.cached_tokens / min(history, max(1, usage.prompt_tokens))))

"""How many tokens of KV a turn will need, and how many it should find cached, before the engine has counted them."""

from __future__ import annotations

import math
from typing import Final

from concur_proxy.core.sessions import Session
from concur_proxy.core.statistics import Mean
from concur_proxy.model import TurnFacts, Usage

TOKENS_PER_BYTE: Final = 0.25
"""Where estimates start: English text and code have about four bytes to a token."""

MOST_TOKENS_PER_BYTE: Final = 2.0
OUTPUT_TOKENS: Final = 256.0
MEDIA_TOKENS_PER_BYTE: Final = 0.002
BLOCK_TOKENS: Final = 16
REUSE_WEIGHT: Final = 0.2
"""Of the newest turn in a session's own reuse ratio."""


class FootprintEstimator:
    """Learns tokens per byte, output length, and how much of an unchanged history engines find in their cache."""

    __slots__ = ("_output", "_reuse", "_tokens_per_byte")

    def __init__(self) -> None:
        self._tokens_per_byte = Mean(TOKENS_PER_BYTE)
        self._output = Mean(OUTPUT_TOKENS)
        self._reuse = Mean(1.0)

    def tokens(self, facts: TurnFacts, session: Session) -> int:
        """Return the tokens that the turn will occupy: its prompt and all of its outputs.

        The prompt is at least what the session had before: bodies that name their history by an id are short.
        """
        ratio = session.tokens_per_byte or self._tokens_per_byte.value
        prompt = (facts.body_bytes - facts.media_bytes) * ratio + facts.media_bytes * MEDIA_TOKENS_PER_BYTE
        output = self._output.value
        if facts.max_output_tokens is not None and facts.max_output_tokens < output:
            output = float(facts.max_output_tokens)
        return max(1, math.ceil(max(prompt, session.footprint) + output * facts.choices))

    def expected_cached(self, session: Session, history: int, prompt_tokens: int) -> int:
        """Return the tokens that an undisturbed cache would give: unchanged history by learned reuse, whole blocks."""
        reuse = self._reuse.value if session.reuse is None else session.reuse
        return int(min(history, prompt_tokens) * reuse) // BLOCK_TOKENS * BLOCK_TOKENS

    def learn(self, facts: TurnFacts, session: Session, usage: Usage) -> None:
        """Take in what the engine counted for the prompt and the output."""
        text = facts.body_bytes - facts.media_bytes
        if text > 0 and not facts.media_bytes and usage.prompt_tokens > 0:
            session.tokens_per_byte = min(MOST_TOKENS_PER_BYTE, usage.prompt_tokens / text)
            self._tokens_per_byte.add(session.tokens_per_byte)
        if usage.completion_tokens > 0:
            self._output.add(usage.completion_tokens / max(1, facts.choices))

    def learn_reuse(self, session: Session, history: int, usage: Usage) -> None:
        """Take in how much of a resident history was found; of evicted ones a miss says nothing about reuse."""
        if usage.cached_tokens is None or history <= 0 or usage.prompt_tokens <= 0:
            return
        found = min(1.0, usage.cached_tokens / min(history, usage.prompt_tokens))
        self._reuse.add(found)
        before = found if session.reuse is None else session.reuse
        session.reuse = before + REUSE_WEIGHT * (found - before)

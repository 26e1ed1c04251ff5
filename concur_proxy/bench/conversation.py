"""Turns the counts of a script into the messages of a conversation.

Texts are made of words that are one token each to the engine, so that prompts are as long as the script says and what
was generated is found in the cache again when it comes back as history.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import orjson

from concur_proxy.errors import ConfigError
from concur_proxy.sim.tokens import WORDS
from concur_proxy.sim.workload import SessionScript, TurnScript

TEMPLATE_TOKENS = 4
"""What a chat template adds to each message, about: its role and marks."""
PREFIX_SEED = "prefix"
EMBEDDED_WORDS: tuple[str, ...] = tuple(word.strip() for word in WORDS)
"""Words of the embedded engine."""


class History(enum.StrEnum):
    """What a client sends back of what was generated."""

    FULL = "full"
    WITHOUT_GENERATED = "without_generated"
    """Nothing: the engine has cached the generated tokens for no one."""


def read_words(path: Path) -> tuple[str, ...]:
    """Read a word list: a JSON list or object (its keys), or a word a line. ConfigError where it has none."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        words = tuple(map(str, json.loads(text)))
    except (ValueError, TypeError):
        words = tuple(text.split())
    if not words:
        raise ConfigError(f"{path}: has no words")
    return words


class Conversation:
    """One agent's messages. The same script, words and seed give the same texts."""

    def __init__(
        self,
        script: SessionScript,
        words: Sequence[str],
        *,
        history: History,
        seed: int,
        tokens_per_word: float = 1.0,
    ) -> None:
        self._random = Random(f"{seed}/{script.id}")
        self._words = words
        self._tokens_per_word = tokens_per_word
        self._history = history
        prefix = self._words_of(script.prefix_tokens - TEMPLATE_TOKENS)
        self._system: dict[str, object] = {"role": "system", "content": _shared_text(words, prefix)}
        self._messages = [self._system]

    def ask(self, turn: TurnScript) -> None:
        """Add what the agent says, or what its tool brought, in this turn."""
        if turn.rewrites:
            self._messages = [self._system]
        # The turn's prompt has this message's marks and those of the answer that begins.
        words = self._words_of(turn.new_prompt_tokens - 2 * TEMPLATE_TOKENS)
        self._messages.append({"role": "user", "content": " ".join(self._random.choices(self._words, k=words))})

    def _words_of(self, tokens: int) -> int:
        return max(1, round(tokens / self._tokens_per_word))

    def body(self, fields: dict[str, object]) -> bytes:
        return orjson.dumps({**fields, "messages": self._messages})

    def answered(self, text: str) -> None:
        if self._history is History.FULL:
            self._messages.append({"role": "assistant", "content": text})


def _shared_text(words: Sequence[str], count: int) -> str:
    """Return the beginning of a text that is the same for all: a shorter one begins a longer one."""
    return " ".join(Random(PREFIX_SEED).choices(words, k=count))

"""Finds out what batch turns that wait are about, so that those about the same thing go next to each other.

A model of sentence-transformers (extra ``meaning``, ``batch.meaning_model``) makes a vector of a turn's first user
message; turns whose vectors point the same way are of one topic. That happens on a thread of its own while a turn is
held, and never to one that is let in at once: a turn whose topic is not known yet goes where it would go without.

Engines share equal beginnings of prompts, not alike ones. It helps where the texts in a batch begin with what they are
about, and nothing else tells: with documents in front of their questions, say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from concur_proxy.errors import ConfigError

logger = logging.getLogger(__name__)

Embed = Callable[[list[str]], NDArray[np.float32]]
"""Makes a vector of length 1 of each text, a row each; may take its time."""

ALIKE = 0.8
"""Cosine of two texts from which they are about the same thing."""
MAX_TOPICS = 64
"""The one that was not seen for longest makes room. Each text is compared with all of them."""
MAX_TEXT = 2000
"""Characters of a text that are looked at: models read no more of it."""
MAX_BODY = 4 << 20
"""Bytes of a request beyond which nobody looks for the text."""
AT_ONCE = 32
MAX_WAITING = 20_000
"""Turns that wait for the model; those that come then stay without a topic."""


class Topics:
    """Numbers of topics: a text belongs to the one that it is most like, or begins another."""

    def __init__(self) -> None:
        self._first: NDArray[np.float32] | None = None
        """The vectors of the texts that have begun them, a row each."""
        self._numbers: list[int] = []
        self._seen: list[int] = []
        self._texts = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, vector: NDArray[np.float32]) -> int:
        """Return the topic of a text."""
        self._texts += 1
        if self._first is None:
            self._first = np.zeros((MAX_TOPICS, len(vector)), np.float32)
        likeness = self._first[: len(self)] @ vector
        row = int(likeness.argmax()) if len(self) else -1
        if row < 0 or likeness[row] < ALIKE:
            row = self._begin(vector)
        self._seen[row] = self._texts
        return self._numbers[row]

    def _begin(self, vector: NDArray[np.float32]) -> int:
        assert self._first is not None
        row = len(self)
        if row < MAX_TOPICS:
            self._numbers.append(0)
            self._seen.append(0)
        else:
            row = self._seen.index(min(self._seen))
        self._first[row] = vector
        self._numbers[row] = self._texts
        return row


class Grouper:
    """Lives in one event loop. ``is_held`` tells whether a ticket still waits, ``group`` is told its topic."""

    def __init__(self, embed: Embed, *, is_held: Callable[[int], bool], group: Callable[[int, int], None]) -> None:
        self._embed = embed
        self._is_held = is_held
        self._group = group
        self._topics = Topics()
        self._waiting: dict[int, bytes] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meaning")
        self._task: asyncio.Task[None] | None = None

    def held(self, ticket: int, body: bytes) -> None:
        """A batch turn waits."""
        if len(body) > MAX_BODY or len(self._waiting) >= MAX_WAITING:
            return
        self._waiting[ticket] = body
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="meaning")

    async def idle(self) -> None:
        """Return when nobody waits for a topic."""
        while self._task is not None:
            await self._task

    async def close(self) -> None:
        """Leave the rest without topics."""
        self._waiting.clear()
        await self.idle()
        self._thread.shutdown()

    async def _run(self) -> None:
        try:
            while self._waiting:
                some = self._take()
                for ticket, topic in await asyncio.get_running_loop().run_in_executor(self._thread, self._look, some):
                    self._group(ticket, topic)
        except Exception:
            logger.exception("batch turns cannot be grouped by what they mean")
        finally:
            self._task = None

    def _take(self) -> list[tuple[int, bytes]]:
        """Take out some of those that still wait, the oldest first."""
        some: list[tuple[int, bytes]] = []
        while self._waiting and len(some) < AT_ONCE:
            ticket = next(iter(self._waiting))
            body = self._waiting.pop(ticket)
            if self._is_held(ticket):
                some.append((ticket, body))
        return some

    def _look(self, some: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
        texts = {ticket: text for ticket, body in some if (text := first_text(body))}
        if not texts:
            return []
        vectors = self._embed(list(texts.values()))
        return [(ticket, self._topics.of(vector)) for ticket, vector in zip(texts, vectors, strict=True)]


def first_text(body: bytes) -> str:
    """Return how the first user message begins; "" where there is none."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(fields, dict):
        return ""
    said = fields.get("messages") or fields.get("input") or fields.get("prompt")
    if isinstance(said, list):
        said = next((each for each in said if isinstance(each, dict) and each.get("role") == "user"), None)
    return _text(said["content"] if isinstance(said, dict) and "content" in said else said)


def _text(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = next((text for text in parts if isinstance(text, str)), None)
    return content[:MAX_TEXT] if isinstance(content, str) else ""


def load(model: str) -> Embed:
    """Load a model by its name or folder. ConfigError where it cannot be."""
    try:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - in an extra, and slow to import
    except ImportError as error:
        raise ConfigError(
            f"batch.meaning_model: it needs more packages ({error.name} is missing): "
            "pip install 'concur-proxy[meaning]'"
        ) from None
    try:
        loaded: Any = SentenceTransformer(model, device="cpu")
    except Exception as error:  # whatever the hub, the file system or the model's own code may raise
        raise ConfigError(f"batch.meaning_model: {model} cannot be loaded: {error}") from error

    def embed(texts: list[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return vectors

    return embed

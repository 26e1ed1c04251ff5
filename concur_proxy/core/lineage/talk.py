"""What a request says, as a chain of points: each stands for everything up to there, in one namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from concur_proxy.core.lineage.digests import text_digest, without_thinking
from concur_proxy.core.lineage.lengths import Lengths

SYSTEM_ROLES: Final[tuple[str, ...]] = ("system", "developer")
ASKING = ("user", *SYSTEM_ROLES)
MODEL: Final = "assistant"
CALLS: Final[tuple[str, ...]] = ("function_call", "custom_tool_call")
"""Types of the Responses API's items in which the model calls a tool."""


class Answer(NamedTuple):
    """How what the model has said is known again. Hashes, 0 for none."""

    call: int = 0
    """Id of the first tool call."""
    text: int = 0
    head: int = 0
    """How the text begins: in a plain prompt nobody can tell where it ends."""

    def likeness(self, other: Answer | None) -> int:
        """Return how many of the two agree."""
        if other is None:
            return 0
        return sum(own == its != 0 for own, its in zip(self, other, strict=True))


HEAD_LENGTH: Final = 48
"""Characters of a text's beginning."""
HEAD_WINDOW: Final = 64
"""Same, with the space that may come before them."""


class Talk(Protocol):
    has_tools: bool
    """It offers tools to the model: an agent's, most likely, that will be back."""
    key: str
    """The client's own ``prompt_cache_key``: many sessions may share one, but no session has two."""

    def points(self, seed: int, lengths: Lengths) -> list[int]:
        """Return the points at which an earlier talk may have ended, this one's own end last. Never empty."""

    def remember(self, lengths: Lengths) -> None:
        """Note what later talks need to find this one's end."""

    def role(self, index: int) -> str:
        """Return who says what ends at point ``index``."""

    def answer(self, index: int) -> Answer | None:
        """Return what is known of what ends at point ``index``, where the model has said it."""

    def skips_answer(self, index: int) -> bool:
        """Tell whether what ends at point ``index`` came right after a request, as if that had had no answer."""

    def tail(self, seed: int, index: int) -> int:
        """Return a number for message ``index`` and the one before it, wherever they stand; 0 for none."""


class Messages:
    """A talk of messages, a point each. The first ``system`` of ``items`` are the operator's words."""

    __slots__ = ("_digests", "_items", "_previous", "_system", "has_tools", "key")

    def __init__(
        self,
        digests: list[int],
        items: Sequence[object],
        *,
        system: int,
        has_tools: bool = False,
        key: str = "",
        previous: str = "",
    ) -> None:
        self._digests = digests
        self._items = items
        self._system = system
        self._previous = previous
        self.has_tools = has_tools
        self.key = key

    def points(self, seed: int, lengths: Lengths) -> list[int]:  # noqa: ARG002 - messages bring their own bounds
        point = response_point(seed, self._previous) if self._previous else seed
        points = [point] if self._previous else []
        for digest in self._digests:
            point = hash((point, digest))
            points.append(point)
        return points

    def remember(self, lengths: Lengths) -> None:
        pass

    def role(self, index: int) -> str:
        item = self._item(index)
        role = item.get("role")
        if type(role) is str:
            return role
        return MODEL if item.get("type") in CALLS else ""

    def answer(self, index: int) -> Answer | None:
        return answer_in(self._item(index)) if self.role(index) == MODEL else None

    def skips_answer(self, index: int) -> bool:
        return index - self._offset >= 0 and not (self._previous and index == 1) and self.role(index) in ASKING

    def tail(self, seed: int, index: int) -> int:
        at = index - self._offset
        if at < self._system:
            return 0
        before = self._digests[at - 1] if at > self._system else 0
        return hash((seed, "tail", before, self._digests[at]))

    def _item(self, index: int) -> dict[str, object]:
        at = index - self._offset
        item = self._items[at] if 0 <= at < len(self._items) else None
        return item if isinstance(item, dict) else {}

    @property
    def _offset(self) -> int:
        """The first point is an earlier response's, which is no message of this talk."""
        return 1 if self._previous else 0


def response_point(seed: int, response_id: str) -> int:
    """Return the point at which a talk stands that goes on from a response of the Responses API."""
    return hash((seed, "response", response_id))


def answer_in(message: dict[str, object]) -> Answer:
    """Read the answer off a message, whose shape may be that of any of the APIs."""
    content = message.get("content")
    if isinstance(content, str):
        return Answer(_first_call(message.get("tool_calls")), said(content))
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        texts = [part.get("text") for part in parts]
        text = "".join(each for each in texts if isinstance(each, str))
        return Answer(_first_call(message.get("tool_calls")) or _first_use(parts), said(text))
    return Answer(_first_call(message.get("tool_calls")) or text_digest(message.get("call_id")), 0)


def said(text: str) -> int:
    """Return the number of a generated text; reasoning before it and space around it do not count."""
    return text_digest(without_thinking(text).strip())


def head(text: str) -> int:
    """Return the number of how a text begins; 0 for a short one."""
    begin = text[:HEAD_WINDOW].lstrip()[:HEAD_LENGTH]
    return text_digest(begin) if len(begin) == HEAD_LENGTH else 0


def _first_call(calls: object) -> int:
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        return text_digest(calls[0].get("id"))
    return 0


def _first_use(parts: list[dict[str, object]]) -> int:
    return next((text_digest(part.get("id")) for part in parts if part.get("type") == "tool_use"), 0)

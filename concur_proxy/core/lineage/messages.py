"""From the fields of a request to its talk, for each of the APIs.

A talk that is only a system text is none: everybody's begins so. Neither is one with more messages than any agent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from concur_proxy.core.lineage.digests import content_digest, item_digest, message_digest
from concur_proxy.core.lineage.prompts import Prompt
from concur_proxy.core.lineage.talk import SYSTEM_ROLES, Messages, Talk

MAX_MESSAGES: Final = 4096
"""A longer talk is nobody's: what one request costs is bounded."""
MAX_TOKENS: Final = 1 << 20
"""Same for a prompt of token numbers."""


def talk_of(fields: Mapping[str, object]) -> Talk | None:
    """Return what a turn says; None where that is nothing that a later turn could go on from."""
    messages = fields.get("messages")
    if isinstance(messages, list):
        return _chat(fields, messages)
    if "prompt" in fields:
        return _prompt(fields)
    given = fields.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}] if given else []
    return _responses(fields, given) if isinstance(given, list) else None


def _chat(fields: Mapping[str, object], messages: list[object]) -> Talk | None:
    if not 0 < len(messages) <= MAX_MESSAGES:
        return None
    digests = [message_digest(message) for message in messages]
    system = fields.get("system")
    if not system:
        return _messages(fields, digests, messages)
    return _messages(fields, [_system_digest(system), *digests], [{"role": "system"}, *messages])


def _responses(fields: Mapping[str, object], given: list[object]) -> Talk | None:
    if not 0 < len(given) <= MAX_MESSAGES:
        return None
    pairs = [(digest, item) for item in given if (digest := item_digest(item)) is not None]
    digests, items = [digest for digest, _ in pairs], [item for _, item in pairs]
    previous = fields.get("previous_response_id")
    if isinstance(previous, str) and previous:
        return _messages(fields, digests, items, previous=previous)
    if instructions := fields.get("instructions"):
        digests, items = [_system_digest(instructions), *digests], [{"role": "system"}, *items]
    return _messages(fields, digests, items)


def _prompt(fields: Mapping[str, object]) -> Talk | None:
    prompt = fields["prompt"]
    if isinstance(prompt, list):
        if not 0 < len(prompt) <= MAX_TOKENS or set(map(type, prompt)) != {int}:
            return None  # several prompts at once
    elif not isinstance(prompt, str) or not prompt:
        return None
    return Prompt(prompt, key=_key(fields))


def _messages(
    fields: Mapping[str, object], digests: list[int], items: Sequence[object], *, previous: str = ""
) -> Talk | None:
    system = 0
    for item in items:
        if not isinstance(item, dict) or item.get("role") not in SYSTEM_ROLES:
            break
        system += 1
    if system == len(items) and not previous:
        return None
    return Messages(
        digests, items, system=system, has_tools=bool(fields.get("tools")), key=_key(fields), previous=previous
    )


def _system_digest(system: object) -> int:
    return hash(("system", content_digest(system)))


def _key(fields: Mapping[str, object]) -> str:
    key = fields.get("prompt_cache_key")
    return key if isinstance(key, str) else ""

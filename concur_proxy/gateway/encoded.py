"""Finds what of a body is no text but encoded media. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def media_bytes(fields: dict[str, Any]) -> int:
    """Return how many bytes of a body are base64 media, which say nothing about tokens.

    Looked for where media may stand, not in the text: that would take longer than reading the JSON.
    """
    items = fields.get("messages") or fields.get("input")
    if not isinstance(items, list):
        return 0
    # almost all messages are plain text
    return sum(media_below(item) for item in items if isinstance(item, dict) and type(item.get("content")) is not str)


def media_below(item: dict[str, Any]) -> int:
    """Return the same of a message and of all its parts, also those inside tool results."""
    found = 0
    pending: list[Any] = [item]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            found += _media_in(part)
            content = part.get("content")
            if isinstance(content, list):
                pending.extend(content)
    return found


def _media_in(part: Mapping[str, Any]) -> int:
    media = part.get("image_url") or part.get("input_audio") or part.get("source") or part.get("video_url")
    media = media or part.get("audio_url") or part.get("file_data")
    if isinstance(media, dict):
        media = media.get("url") or media.get("data")
    return len(media) if isinstance(media, str) and (media.startswith("data:") or len(media) > 1024) else 0

"""Turns that name no session: lineage is asked by their messages, and told how they ended."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from concur_proxy.core.identity import Identity
from concur_proxy.core.lineage import NEW, Lineage, Recognised, talk_of
from concur_proxy.core.lineage.answers import AnswerReader
from concur_proxy.core.usage import UsageReader


def lineage_of(limit_bytes: int) -> Lineage | None:
    """Return what recognises sessions by their messages; None where it may take no memory."""
    return Lineage(limit_bytes, name=f"lineage-{secrets.token_hex(4)}") if limit_bytes else None


def recognise(lineage: Lineage, fields: Mapping[str, Any], namespace: str, *, retry: bool) -> Recognised | None:
    """Return whose turn this is; None where it says nothing that could be continued."""
    talk = talk_of(fields)
    return lineage.recognise(namespace, talk, retry=retry) if talk is not None else None


def identity(found: Recognised, named: Identity, fields: Mapping[str, Any]) -> Identity:
    """Return the identity of a turn that ``named`` nobody.

    Whoever offers no tools, and has not been here before, ends with the answer: most traffic of that kind is no
    agent's. If it goes on nevertheless, it is known again, and keeps its place from then on.
    """
    one_turn = found.rule == NEW and not fields.get("tools")
    final = named.final or one_turn
    return Identity(found.session, found.parent, found.rule, final=final, rejected=named.rejected)


def listening(reader: UsageReader, content_type: str) -> AnswerReader:
    """Return a reader that knows the answer, too."""
    return AnswerReader(reader, streamed=content_type.lstrip().lower().startswith("text/event-stream"))


def settle(lineage: Lineage, found: Recognised, reader: UsageReader | None, *, completed: bool) -> None:
    """Tell lineage how a turn of its ended."""
    answer = reader.answer if isinstance(reader, AnswerReader) else None
    response_id = reader.response_id if reader is not None else None
    lineage.answered(found.run, completed=completed, answer=answer, response_id=response_id)

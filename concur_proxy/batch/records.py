"""What the store is told, and tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewBatch:
    """``identity``: by whom its lines are sent, as JSON; forgotten when it has ended."""

    owner: str
    endpoint: str
    input_file: str
    completion_window: str
    window_s: int
    metadata: str | None
    output_expires_s: int | None
    identity: str


@dataclass(slots=True)
class NewLine:
    """Where a request stands in the input file."""

    number: int
    """Of the line in the file, from 1."""
    first_byte: int
    length: int
    custom_id: str
    successor: int | None = None
    """Number of the next line of its session."""
    is_first: bool = True
    """No earlier line is of its session."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens, as answers report them."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a line came to: one line of the output file, or of the error file."""

    number: int
    failed: bool
    text: bytes
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True)
class Claim:
    """A line to be played, with the request as the input file has it."""

    number: int
    custom_id: str
    request: bytes


@dataclass(frozen=True, slots=True)
class NewFile:
    """``batch``: the one whose answers it holds, of which ``failed`` says which. Only what is ``whole`` is seen."""

    owner: str
    purpose: str
    filename: str
    size: int
    expires_at: int
    whole: bool = True
    batch: str | None = None
    failed: bool = False

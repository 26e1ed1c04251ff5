"""Who sends a turn: the session that its headers or its body name, by the first rule of a literal table that applies.

Rules, in order (docs/sessions.md): the operator's own headers; Claude Code; Codex; OpenCode; Dynamo; LiteLLM; any
``x-<vendor>-session-id``; fields of the body. Where none applies the turn is anonymous, a one-turn session of its own:
unlabelled traffic never shares a session.

An id is at most 256 bytes and printable; space around it does not count, and an empty one is none. One that is there
but cannot be used is passed over and reported. Request, trace and user ids never name a session. Runs on every request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from concur_proxy.model import SessionKey

MAX_ID_BYTES: Final = 256
ANONYMOUS: Final = "anonymous"
OPERATOR: Final = "operator"
VENDOR: Final = "vendor"
NO_KEY: Final = "-"
"""The namespace of requests without an API key."""

Headers = Mapping[str, str]
Body = Mapping[str, object]


@dataclass(init=False, slots=True, unsafe_hash=True)
class Identity:
    """``rule`` is one of ``RULES``; ``rejected``: some id was there that is too long or not printable."""

    session: Final[SessionKey | None]
    parent: Final[SessionKey | None]
    rule: Final[str]
    final: Final[bool]
    rejected: Final[bool]

    def __init__(
        self,
        session: SessionKey | None = None,
        parent: SessionKey | None = None,
        rule: str = ANONYMOUS,
        *,
        final: bool = False,
        rejected: bool = False,
    ) -> None:
        self.session = session
        self.parent = parent
        self.rule = rule
        self.final = final
        self.rejected = rejected


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """The headers by which one kind of client names its sessions.

    Clients whose agents share one session id tell them apart by ``agent``: each is a session of its own.
    """

    name: str
    session: str
    agent: str | None = None
    parent: str | None = None
    """Names the agent that started this one where the client tells agents apart, else the parent session."""
    only_children: bool = False
    """The main agent sends no ``agent`` header: who sends one is its child, and nobody else has a parent."""


PARENT: Final = "x-parent-session-id"
HEADER_RULES = (
    HeaderRule(
        "claude-code",
        "x-claude-code-session-id",
        agent="x-claude-code-agent-id",
        parent="x-claude-code-parent-agent-id",
        only_children=True,
    ),
    HeaderRule("codex", "session-id", agent="thread-id", parent="x-codex-parent-thread-id"),
    HeaderRule("codex", "session_id", agent="thread-id", parent="x-codex-parent-thread-id"),
    HeaderRule("opencode", "x-session-affinity", parent=PARENT),
    HeaderRule("opencode", "x-session-id", parent=PARENT),
    HeaderRule("dynamo", "x-dynamo-session-id", parent="x-dynamo-parent-session-id"),
    HeaderRule("litellm", "x-litellm-session-id"),
)

BODY_RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("body.session_id", ("session_id",)),
    ("body.vllm_xargs.session_id", ("vllm_xargs", "session_id")),
    ("body.vllm_xargs.agentic_context.program_id", ("vllm_xargs", "agentic_context", "program_id")),
    ("body.agent_hint.session_id", ("agent_hint", "session_id")),
    ("body.program_id", ("program_id",)),
    ("body.program_id", ("extra_body", "program_id")),
    ("body.session_params.id", ("session_params", "id")),
    ("body.conversation", ("conversation",)),
    ("body.conversation", ("conversation", "id")),
    ("body.metadata.user_id", ("metadata", "user_id")),
)
USER_ID: Final = "body.metadata.user_id"
USER_SESSION: Final = "_session_"
"""An Anthropic user id holds a session only after this; without it, it names a person."""

RULES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        (OPERATOR, *(rule.name for rule in HEADER_RULES), VENDOR, *(name for name, _ in BODY_RULES), ANONYMOUS)
    )
)
"""Every name that a rule is reported under."""

FINAL_HEADERS: Final[tuple[str, ...]] = ("x-session-final", "x-dynamo-session-final")
NO: Final = frozenset({"", "0", "false", "no"})

VENDOR_HEADER: Final = re.compile(r"x-.+-session-id")
VENDOR_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{8,}")
NOT_VENDORS: Final = frozenset({rule.session for rule in HEADER_RULES} | {PARENT, "x-dynamo-parent-session-id"})

_Found = tuple[str, str, str | None]
"""Rule, session, parent."""


class _Ids:
    """Reads ids, and remembers whether one was there that cannot be used."""

    __slots__ = ("rejected",)

    def __init__(self) -> None:
        self.rejected = False

    def read(self, value: object) -> str | None:
        """Return a usable id, or None."""
        if value is None:
            return None
        if type(value) is int and -(1 << 63) <= value < 1 << 64:
            return str(value)
        if not isinstance(value, str) or not (text := value.strip()):
            return None
        if text.isprintable() and (len(text) <= MAX_ID_BYTES // 4 or len(text.encode()) <= MAX_ID_BYTES):
            return text
        self.rejected = True
        return None


def identify(headers: Headers, body: Body | None, *, namespace: str, operator_headers: tuple[str, ...]) -> Identity:
    """Return whose turn this is. ``headers`` have lower-case names; ``body`` is None where it is no JSON object."""
    ids = _Ids()
    found = _by_operator(headers, operator_headers, ids) or _by_client(headers, ids) or _by_vendor(headers, ids)
    if found is None and body:
        found = _by_body(body, ids)
    final = _is_final(headers)
    if found is None:
        return Identity(final=final, rejected=ids.rejected)
    rule, session, parent = found
    key = SessionKey(namespace, session)
    above = SessionKey(namespace, parent) if parent is not None and parent != session else None
    return Identity(key, above, rule, final=final, rejected=ids.rejected)


@lru_cache(maxsize=16)
def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _by_operator(headers: Headers, names: tuple[str, ...], ids: _Ids) -> _Found | None:
    for name in _lower(names):
        if name in headers and (session := ids.read(headers[name])):
            return OPERATOR, session, ids.read(headers.get(PARENT))
    return None


def _by_client(headers: Headers, ids: _Ids) -> _Found | None:
    for rule in HEADER_RULES:
        if rule.session in headers and (found := _by_rule(rule, headers, ids)):
            return found
    return None


def _by_rule(rule: HeaderRule, headers: Headers, ids: _Ids) -> _Found | None:
    session = ids.read(headers[rule.session])
    if session is None:
        return None
    parent = ids.read(headers.get(rule.parent)) if rule.parent else None
    told = headers.get(rule.agent, "").strip() if rule.agent else ""
    if not told:
        return rule.name, session, None if rule.only_children else parent
    agent = ids.read(told)
    if agent is None:
        return None  # without it the agent would count as the one that started it
    if parent is not None:
        return rule.name, _member(session, agent), _member(session, parent)
    return rule.name, _member(session, agent), session if rule.only_children else None


def _member(session: str, agent: str) -> str:
    """Name one of the agents that share a session id; the main one may carry that id itself."""
    return session if agent == session else f"{session}/{agent}"


def _by_vendor(headers: Headers, ids: _Ids) -> _Found | None:
    names = [name for name in headers if name.endswith("-session-id") and VENDOR_HEADER.fullmatch(name)]
    for name in sorted(names):
        if name in NOT_VENDORS:
            continue
        session = ids.read(headers[name])
        if session and VENDOR_VALUE.fullmatch(session):
            return VENDOR, session, None
    return None


def _by_body(body: Body, ids: _Ids) -> _Found | None:
    for rule, path in BODY_RULES:
        if path[0] not in body:
            continue
        value = _at(body, path)
        if rule == USER_ID:
            value = _session_of_user(value)
        if session := ids.read(value):
            return rule, session, None
    return None


def _at(body: Body, path: tuple[str, ...]) -> object:
    value = body.get(path[0])
    for name in path[1:]:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _session_of_user(value: object) -> str | None:
    if not isinstance(value, str) or USER_SESSION not in value:
        return None
    return value.rpartition(USER_SESSION)[2]


def _is_final(headers: Headers) -> bool:
    return any(name in headers and headers[name].strip().lower() not in NO for name in FINAL_HEADERS)


def namespace_of(authorization: str | None, api_key: str | None, secret: bytes) -> str:
    """Return a keyed digest of the API key, or ``NO_KEY``. ``secret`` has at most 64 bytes.

    A key is the same whether it comes as ``Authorization: Bearer`` or as ``x-api-key``.
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    credential = token.strip() if scheme.lower() == "bearer" else (authorization or "").strip()
    credential = credential or (api_key or "").strip()
    if not credential:
        return NO_KEY
    return blake2b(credential.encode(errors="surrogatepass"), digest_size=12, key=secret).hexdigest()

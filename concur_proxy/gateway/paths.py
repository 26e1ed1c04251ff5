"""Which paths are forwarded, and how: a literal table, the operator's additions, and what never passes.

A path is looked up as the engine will read it: percent-decoded, without its query. Wildcards match no path that a
decoder or a normaliser further on could read as another one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from concur_proxy.errors import ConfigError


class Kind(enum.Enum):
    """Family of a path; the value is a label of metrics."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    RESPONSE_ITEM = "response_item"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    POOLING = "pooling"
    CLASSIFY = "classify"
    AUDIO = "audio"
    IMAGES = "images"
    OTHER = "other"


class Shape(enum.Enum):
    """Whose error format a client of this path expects."""

    OPENAI = "openai"
    RESPONSES = "responses"
    """OpenAI's but for errors within a stream."""
    ANTHROPIC = "anthropic"


POST: Final = frozenset({b"POST"})
READ_WRITE: Final = frozenset({b"GET", b"POST", b"DELETE"})
ANY: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


@dataclass(frozen=True, slots=True)
class Route:
    """How one path is served. ``gated``: a turn, which needs a lease; others are only placed on a backend."""

    kind: Kind
    methods: frozenset[bytes] = POST
    gated: bool = False
    shape: Shape = Shape.OPENAI
    spliceable: bool = False
    """Its requests know ``stream_options.include_usage``."""


TABLE: Final[dict[bytes, Route]] = {
    b"/v1/chat/completions": Route(Kind.CHAT, gated=True, spliceable=True),
    b"/v1/completions": Route(Kind.COMPLETIONS, gated=True, spliceable=True),
    b"/v1/responses": Route(Kind.RESPONSES, gated=True, shape=Shape.RESPONSES),
    b"/v1/messages": Route(Kind.MESSAGES, gated=True, shape=Shape.ANTHROPIC),
    b"/v1/messages/count_tokens": Route(Kind.COUNT_TOKENS, shape=Shape.ANTHROPIC),
    b"/v1/embeddings": Route(Kind.EMBEDDINGS),
    b"/rerank": Route(Kind.RERANK),
    b"/v1/rerank": Route(Kind.RERANK),
    b"/v2/rerank": Route(Kind.RERANK),
    b"/score": Route(Kind.SCORE),
    b"/v1/score": Route(Kind.SCORE),
    b"/tokenize": Route(Kind.TOKENIZE),
    b"/detokenize": Route(Kind.DETOKENIZE),
    b"/pooling": Route(Kind.POOLING),
    b"/classify": Route(Kind.CLASSIFY),
}

BELOW: Final[dict[bytes, Route]] = {
    b"/v1/responses/": Route(Kind.RESPONSE_ITEM, methods=READ_WRITE, shape=Shape.RESPONSES),
    b"/v1/audio/": Route(Kind.AUDIO, methods=READ_WRITE),
    b"/v1/images/": Route(Kind.IMAGES, methods=READ_WRITE),
}

EXTRA: Final = Route(Kind.OTHER, methods=ANY)

DEVELOPMENT = (
    # vLLM
    *(b"reset_", b"sleep", b"wake_up", b"is_sleeping", b"collective_rpc", b"server_info", b"load_lora", b"unload_lora"),
    *(b"start_profile", b"stop_profile", b"scale_elastic", b"is_scaling", b"pause", b"resume", b"is_paused"),
    *(b"abort_request", b"init_weight", b"update_weight", b"get_world_size", b"debug"),
    # SGLang
    *(b"get_server_info", b"flush_cache", b"get_weight", b"release_memory", b"destroy_weight", b"configure_logging"),
    *(b"set_internal_state", b"get_internal_state", b"get_load", b"open_session", b"close_session", b"freeze_gc"),
    *(b"start_expert", b"stop_expert", b"dump_", b"slow_down", b"set_trace", b"hicache", b"clear_hicache", b"shutdown"),
    *(b"attach_", b"detach_", b"continue_generation", b"weights_checker"),
)
"""Starts of path segments under which engines keep what changes or reveals the engine itself."""


def is_development(path: bytes) -> bool:
    """Tell whether any segment of the decoded path belongs to an engine's own management."""
    return any(segment.startswith(DEVELOPMENT) for segment in path.lower().split(b"/"))


def is_plain(path: bytes) -> bool:
    """Tell whether every reader sees the same segments: nothing to normalise, nothing left to decode."""
    odd = b"//" in path or b"\\" in path or b"%" in path or b";" in path or b"#" in path
    return not odd and not any(segment in (b".", b"..") for segment in path.split(b"/"))


class Routes:
    """The table together with the operator's ``extra_paths``: exact ones, or ending in ``/*`` for all below."""

    def __init__(self, extra_paths: Iterable[str] = ()) -> None:
        self._exact = dict(TABLE)
        self._below = dict(BELOW)
        for text in extra_paths:
            self._add(text)

    def find(self, path: bytes) -> Route | None:
        """Return the route of a path as sent, without its query; None where it is not for the engines."""
        route = self._exact.get(path)
        return route if route is not None else self._find_slowly(path)

    def _find_slowly(self, path: bytes) -> Route | None:
        if b"%" in path:
            path = unquote_to_bytes(path)
            if path in self._exact:
                return self._exact[path]
        if not is_plain(path) or is_development(path):
            return None
        return next(
            (route for prefix, route in self._below.items() if path.startswith(prefix) and path != prefix), None
        )

    def _add(self, text: str) -> None:
        path = text.encode()
        if not path.startswith(b"/") or path == b"/*" or is_development(path) or not is_plain(path.removesuffix(b"*")):
            raise ConfigError(
                f"server.extra_paths: {text!r} cannot be forwarded: give a path such as /v1/foo or /v1/foo/*, "
                "and none of an engine's development endpoints"
            )
        if path.endswith(b"/*"):
            self._below.setdefault(path[:-1], EXTRA)
        else:
            self._exact.setdefault(path, EXTRA)

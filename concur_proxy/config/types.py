"""Types of single settings: what a URL, a secret, a header name or a path may look like. The tree is in ``tree``."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, SecretStr

_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})


def _backend_url(text: str) -> str:
    """Return the URL without a trailing slash or ``/v1``, in which clients' base URLs end."""
    if text.startswith("unix:"):
        return f"unix:{_socket_path(text)}"
    parts = _web_url(text)
    return text[: len(text) - len(parts.path)] + parts.path.rstrip("/").removesuffix("/v1").rstrip("/")


def _socket_path(text: str) -> str:
    path = text.removeprefix("unix:").removeprefix("//")
    if not re.fullmatch(r"/[!-~]+", path):
        raise ValueError("needs an absolute path to a socket after unix:")
    return path


def _web_url(text: str) -> SplitResult:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be a URL such as http://host:8000, https://host or unix:/path/to.sock")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; use api_key")
    if parts.query or parts.fragment or re.search(r"[^!-~]", text):
        raise ValueError("must not hold a query, a fragment, spaces or control characters")
    if parts.port == 0:  # reading it also refuses what is no port
        raise ValueError("must not use port 0")
    return parts


def _plain_url(text: str) -> str:
    """Return an http URL whose host is a name that can be looked up."""
    if not text.startswith("http://"):
        raise ValueError("must be an http:// URL: a certificate cannot vouch for the addresses of a name")
    return _backend_url(text)


def _backend_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:/-]{1,64}", text):
        raise ValueError("must be 1 to 64 letters, digits or any of . _ : / -")
    return text


def _metrics_url(text: str) -> str:
    _web_url(text)
    return text


def _events_url(text: str) -> str:
    if not re.fullmatch(r"tcp://(\[[0-9a-fA-F:]+\]|[^\s/:]+):\d{1,5}|ipc://\S+", text):
        raise ValueError("must be tcp://host:port or ipc://path, as in the engine's --kv-events-config")
    return text


def events_url_of(url: str, rank: int) -> str:
    """Return where a data-parallel rank publishes its events: each on a port of its own, from rank 0's on."""
    if not url.startswith("tcp:"):
        return url
    host, _, port = url.rpartition(":")
    return f"{host}:{int(port) + rank}"


def _identity_url(text: str) -> str:
    """Keys that come over plain HTTP are whoever's is on the way."""
    parts = _web_url(text)
    if parts.scheme != "https" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise ValueError("must be an https:// URL: what tokens are checked with must not be changed on the way")
    return text


def _secret(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise ValueError("must be printable ASCII without spaces, as it travels in a header")
    return value


def _state_url(value: SecretStr) -> SecretStr:
    parts = urlsplit(value.get_secret_value())
    schemes = {"redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "redis+cluster"}
    if parts.scheme not in schemes or not (parts.path if parts.scheme == "unix" else parts.netloc):
        raise ValueError(
            "must be a URL such as redis://host:6379/0, rediss://host, unix:///path/to.sock, "
            "redis+sentinel://host:26379,host:26379/master or redis+cluster://host:6379"
        )
    if parts.scheme == "redis+sentinel" and not parts.path.strip("/"):
        raise ValueError("needs the name of the master after the hosts: redis+sentinel://host:26379/master")
    return value


def _session_header(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", name):
        raise ValueError("must be the name of a header")
    if name.lower() in _SECRET_HEADERS:
        raise ValueError("carries a secret and cannot name sessions")
    return name


def _path_pattern(pattern: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-](/\*)?", pattern):
        raise ValueError("must be a path such as /v1/custom, or end in /*")
    return pattern


Seconds = Annotated[float, Field(ge=0, le=86_400)]
Share = Annotated[float, Field(ge=0, le=1)]
BackendUrl = Annotated[str, AfterValidator(_backend_url)]
PlainUrl = Annotated[str, AfterValidator(_plain_url)]
BackendName = Annotated[str, AfterValidator(_backend_name)]
MetricsUrl = Annotated[str, AfterValidator(_metrics_url)]
EventsUrl = Annotated[str, AfterValidator(_events_url)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
SecretText = Annotated[SecretStr, Field(min_length=1)]
IdentityUrl = Annotated[str, AfterValidator(_identity_url)]
StateUrl = Annotated[SecretStr, AfterValidator(_state_url)]
HeaderName = Annotated[str, AfterValidator(_session_header)]
PathPattern = Annotated[str, AfterValidator(_path_pattern)]

"""Who may manage the proxy.

With an admin token set, whoever presents it. With none, callers on the machine itself: the peer's address is loopback
or the listener is a Unix socket, nothing forwarded the request, and no web page of another origin sent it. Headers can
take this right away, never give it.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from concur_proxy.errors import ForbiddenError, NotAuthorizedError

FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip"})
FORWARDED_STARTS = ("x-forwarded-", "x-envoy-", "x-original-", "l5d-", "cf-")
"""Headers that proxies add: the caller is not the peer, so the peer's address says nothing. The sidecar of a mesh
passes on by loopback what comes from elsewhere, and says so in words of its own only."""
CROSS_SITE = ("cross-site", "same-site")
"""What browsers say of requests that a page of another origin makes."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Tells managers from others."""

    token: str | None

    def check(self, request: Request) -> None:
        """Raise ``NotAuthorizedError`` or ``ForbiddenError`` unless the caller may manage the proxy."""
        if self.token is not None:
            if not self.has_token(request):
                raise NotAuthorizedError("Management calls need the header 'Authorization: Bearer <admin token>'.")
        elif not is_local(request):
            raise ForbiddenError(
                "Without an admin token, management calls work only from the machine that the proxy runs on. "
                "Set CONCUR_SERVER__ADMIN_TOKEN to call from elsewhere."
            )

    def has_token(self, request: Request) -> bool:
        """Tell whether the caller presents the admin token; takes the same time for every wrong one."""
        if self.token is None:
            return False
        return hmac.compare_digest((bearer(request) or "").encode(), self.token.encode())

    def manages(self, request: Request) -> bool:
        """Tell whether ``check`` would let the caller through."""
        return self.has_token(request) if self.token is not None else is_local(request)


def bearer(request: Request) -> str | None:
    """Return the bearer token of a request."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def is_local(request: Request) -> bool:
    """Tell whether a program on this machine sent the request, by itself and not on behalf of others."""
    return (
        _is_peer_local(request) and not _is_forwarded(request) and _is_host_local(request) and _is_same_origin(request)
    )


def _is_peer_local(request: Request) -> bool:
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None:  # a Unix socket has no peer address, but neither has a TCP connection that was reset meanwhile
        return server is not None and server[1] is None
    return _is_loopback(client[0])


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_forwarded(request: Request) -> bool:
    return any(name in FORWARDED or name.startswith(FORWARDED_STARTS) for name in request.headers)


def _is_host_local(request: Request) -> bool:
    """A page whose name was rebound to 127.0.0.1 still sends its own name."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or "localhost"
    except ValueError:
        return False
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_same_origin(request: Request) -> bool:
    """Browsers say where a page comes from, and what it wants; other clients say nothing.

    A link on another page may lead here: what it opens, that page cannot read.
    """
    headers = request.headers
    if headers.get("sec-fetch-site") in CROSS_SITE and headers.get("sec-fetch-mode") != "navigate":
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")

"""Stands in front of an application: who has no key gets no further than what is open to all.

Closed is what nobody thought of: a path that is added later needs a key until it is listed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import orjson

from concur_proxy.auth.access import Access
from concur_proxy.errors import CHALLENGE, NotAuthenticatedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/livez", "/readyz", "/health", "/metrics"})
"""For probes and scrapers, which have no keys; they tell of the proxy, never of what anybody asked."""
OWN_GUARD = ("/concur", "/programs/release")
"""Paths that ask for the admin token, or for a key, by themselves."""
CALLER = "concur.caller"
"""Where the scope of a request has its ``Caller``."""


class Wall:
    """An ASGI application around another one."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_open(scope["path"]):
            caller = self._access.caller(_headers(scope))
            if caller is None:
                await _refuse(send)
                return
            scope[CALLER] = caller
        await self._app(scope, receive, send)


def is_open(path: str) -> bool:
    """Tell whether a decoded path needs no key here."""
    return path in OPEN or any(path == own or path.startswith(f"{own}/") for own in OWN_GUARD)


def _headers(scope: Scope) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _refuse(send: Send) -> None:
    error = NotAuthenticatedError()
    inner = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    body = orjson.dumps({"error": inner})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), CHALLENGE]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

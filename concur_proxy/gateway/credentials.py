"""Where the proxy checks keys itself: who sends a request, and that its key goes no further.

Without this, engines check their own keys, and requests keep what they bring.
"""

from __future__ import annotations

from typing import Final

from concur_proxy.auth.access import Access
from concur_proxy.auth.caller import Caller
from concur_proxy.errors import ConcurError, ModelForbiddenError, NotAuthenticatedError, ResponseNotFoundError
from concur_proxy.gateway.body import MODEL_PART
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.headers import name_of
from concur_proxy.gateway.paths import Kind

KEPT_HERE: Final = ("authorization", "x-api-key", "api-key")
"""What clients of one kind or another put their keys into, also where we would not look for one."""
CREDENTIALS: Final = frozenset(name.encode() for name in KEPT_HERE)


def admit(exchange: Exchange, access: Access) -> NotAuthenticatedError | None:
    """Find out who sends a request, and take the key off it, also off one that is refused."""
    known = exchange.lowered
    exchange.caller = access.caller(known)
    exchange.headers = [header for header in exchange.headers if name_of(header[0]).lower not in CREDENTIALS]
    for name in KEPT_HERE:
        known.pop(name, None)
    return None if exchange.caller is not None else NotAuthenticatedError()


def forbidden(caller: Caller, exchange: Exchange, kind: Kind, model: str | None) -> ModelForbiddenError | None:
    """Tell whether a caller asks for a model that it may not use; one that cannot be read is none that it may."""
    if not caller.is_restricted or (kind is Kind.RESPONSE_ITEM and model is None):
        return None
    if caller.may_use(model) and not _names_two(exchange):
        return None
    named = f"the model {model!r}" if model is not None else "a request whose model cannot be read"
    return ModelForbiddenError(f"The API key {caller.name!r} is not for {named}.", param="model")


def _names_two(exchange: Exchange) -> bool:
    """Tell whether a form names its model more than once: engines may read another one than we do."""
    if not exchange.lowered.get("content-type", "").lower().startswith("multipart/"):
        return False
    return len(MODEL_PART.findall(exchange.body)) > 1


def foreign(caller: Caller, owner: str | None) -> ConcurError | None:
    """Refuse a stored response that another caller is known to own."""
    if owner is None or owner == caller.namespace:
        return None
    return ResponseNotFoundError("There is no such response.")


def line(api_key: str | None) -> bytes:
    """Return the header line that opens a backend with its own key; empty where it has none."""
    return b"" if api_key is None else b"authorization: Bearer %b\r\n" % api_key.encode()

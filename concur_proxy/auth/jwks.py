"""Fetches the public keys of an identity provider, which hang out in public."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
DISCOVERY = "/.well-known/openid-configuration"


class JwksError(Exception):
    """The keys could not be had; the message says why."""


async def fetch(issuer: str, url: str | None) -> dict[str, Any]:
    """Return the key set at ``url``, or where the issuer's discovery document says it is; raise ``JwksError``."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        if url is None:
            about = await _get(client, issuer.rstrip("/") + DISCOVERY)
            url = about.get("jwks_uri")
            if about.get("issuer") != issuer or not isinstance(url, str) or not url.startswith(_scheme(issuer)):
                raise JwksError(f"the discovery document of {issuer} is for another issuer, or names no jwks_uri")
        return await _get(client, url)


def _scheme(url: str) -> str:
    return url[: url.index("://") + 3]


async def _get(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    try:
        body = await _read(client, url)
        parsed = orjson.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise JwksError(f"{url}: {str(error) or type(error).__name__}") from None
    except orjson.JSONDecodeError:
        raise JwksError(f"{url}: not JSON") from None
    if not isinstance(parsed, dict):
        raise JwksError(f"{url}: not a JSON object")
    return parsed


async def _read(client: httpx.AsyncClient, url: str) -> bytes:
    body = bytearray()
    async with client.stream("GET", url) as answer:
        if answer.status_code != 200:
            raise JwksError(f"{url}: status {answer.status_code}")
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise JwksError(f"{url}: larger than {MAX_BYTES >> 20} MB")
    return bytes(body)

"""The live page: one document that needs nothing else, not even the network beyond this proxy.

It is put together from the files beside this one when it is first asked for; there is no build step. Everything that it
shows comes from the management API, with the same guard, so the document itself has no secrets.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from importlib import resources

SCRIPTS = ("basics", "server", "chart", "overview", "tables", "controls", "main")
"""In the order in which they are read."""


@dataclass(frozen=True, slots=True)
class Page:
    content: bytes
    headers: dict[str, str]


@functools.cache
def page() -> Page:
    """Return the document, and headers that keep everything else out of it."""
    style, script = _read("style.css"), _script()
    content = _read("page.html").replace("{{ style }}", style).replace("{{ script }}", script)
    return Page(content.encode(), _headers(style, script))


def _script() -> str:
    parts = (_read(f"{name}.js") for name in SCRIPTS)
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _headers(style: str, script: str) -> dict[str, str]:
    """Only this very style and this very script run; they may talk to this proxy only, and nobody may frame them."""
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

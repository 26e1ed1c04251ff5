"""The management API on one page, for people: written from its OpenAPI document, without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem }
:root { color-scheme: light dark }
h2 { font: 600 1rem/1.5 ui-monospace, monospace; margin: 2.5rem 0 0 }
h3 { font-size: 1rem; margin: 1rem 0 0 }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #8886; padding: .25rem .75rem .25rem 0; vertical-align: top }
td:first-child { font-family: ui-monospace, monospace; white-space: nowrap }
"""
HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Json = Mapping[str, Any]


def page(document: Json, *, where: str) -> str:
    """Return the page; ``where`` the document is, for programs."""
    info, link = document["info"], escape(where)
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return "".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style><main><h1>{title}</h1>',
            f'<p>For programs, the same as OpenAPI: <a href="{link}">{link}</a>.</p>',
            *(part for path, operations in document["paths"].items() for part in _path(path, operations)),
            "</main></html>",
        ]
    )


def _path(path: str, operations: Json) -> Iterator[str]:
    for method, operation in operations.items():
        yield f"<section><h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['description'])}</p>"
        yield from _table("Parameters", [_parameter(one) for one in operation.get("parameters", ())])
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        yield from _table("Body", [_row(name, one) for name, one in body.get("properties", {}).items()])
        yield "</section>"


def _table(name: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield f"<h3>{name}</h3><table>{''.join(rows)}</table>"


def _parameter(parameter: Json) -> str:
    about = {"description": parameter.get("description", ""), **parameter["schema"]}
    return _row(parameter["name"], about)


def _row(name: str, schema: Json) -> str:
    default = f" Default: {escape(str(schema['default']))}." if schema.get("default") not in (None, "", [], {}) else ""
    cells = (escape(name), escape(kind(schema)), escape(schema.get("description", "")) + default)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def kind(schema: Json) -> str:
    """Return in a few words what a value may be."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"]))
    least, most = schema.get("minimum", schema.get("exclusiveMinimum", "")), schema.get("maximum", "")
    return f"{schema.get('type', 'any')} {least}..{most}".removesuffix(" ..")

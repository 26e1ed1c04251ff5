"""JSON schemas of the settings tree, as parts of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def json_body(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an operation says of a JSON body that it demands."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema without references: those of a part mean nothing in a larger document."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inline(schema, definitions)
    return inlined


def _inline(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inline(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref", "").rpartition("/")[2]
    whole = {**definitions[reference], **part} if reference else part
    return {name: _inline(value, definitions) for name, value in whole.items() if name != "$ref"}

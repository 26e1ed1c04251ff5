"""Further names of models: a request that asks for one goes on under the name that is served. Pure.

Only the value of ``model`` changes; every other byte of the body stays as it was, where that value can be told from
others that look like it. Answers name the model as the engine does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from concur_proxy.gateway.body import MODEL_PART
from concur_proxy.gateway.models import ModelList

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


def with_model(body: bytes, fields: Mapping[str, Any] | None, served: str) -> bytes:
    """Return a JSON body, or without ``fields`` a multipart form, that asks for the model ``served``."""
    if fields is None:
        part = MODEL_PART.search(body)
        return body if part is None else body[: part.start(1)] + served.encode() + body[part.end(1) :]
    found = list(_MODEL.finditer(body))
    if len(found) != 1:  # within a tool or a message, too
        return orjson.dumps({**fields, "model": served})
    return body[: found[0].start(1)] + orjson.dumps(served) + body[found[0].end(1) :]


def with_aliases(found: ModelList, aliases: Mapping[str, str]) -> ModelList:
    """Return the list with an entry for each alias of a model that is in it; ``root`` tells which."""
    if found.status != 200 or not aliases:
        return found
    served = {str(model.get("id")): model for model in found.body["data"]}
    more = [
        {**served[name], "id": alias, "root": served[name].get("root") or name}
        for alias, name in aliases.items()
        if name in served and alias not in served
    ]
    return ModelList(found.status, {**found.body, "data": [*found.body["data"], *more]})

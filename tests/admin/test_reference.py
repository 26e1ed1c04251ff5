"""The API's document stands by itself, and so does the page that is written from it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest
from pydantic import BaseModel

from concur_proxy.admin import reference
from concur_proxy.admin.api import DOCS, SCHEMA
from concur_proxy.admin.schemas import schema_of
from concur_proxy.config import Settings
from concur_proxy.runtime.node import Node
from concur_proxy.runtime.serving import _app


async def read(*paths):
    app = _app(Node(Settings.model_validate({"backends": ["http://127.0.0.1:9"]})))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return [await client.get(path) for path in paths]


@pytest.fixture(scope="module")
def answers():
    document, shown = asyncio.run(read(SCHEMA, DOCS))
    return document.json(), shown


def references(part):
    if isinstance(part, dict):
        yield from ([part["$ref"]] if isinstance(part.get("$ref"), str) else [])
        part = list(part.values())
    for one in part if isinstance(part, list) else ():
        yield from references(one)


def test_every_reference_of_the_document_leads_somewhere_in_it(answers):
    document, _ = answers
    found = set(references(document))
    assert found
    for reference_ in found:
        target = document
        assert reference_.startswith("#/")
        for step in reference_.removeprefix("#/").split("/"):
            assert step in target, reference_
            target = target[step]


def test_models_within_lists_and_models_are_put_in_place():
    class Inner(BaseModel):
        x: int

    class Outer(BaseModel):
        one: Inner
        some: list[Inner] | None = None

    schema = schema_of(Outer)
    assert list(references(schema)) == []
    assert schema["properties"]["one"]["properties"] == Inner.model_json_schema()["properties"]
    assert schema["properties"]["some"]["anyOf"][0]["items"]["required"] == ["x"]


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_names_every_operation_and_what_it_takes(answers):
    document, shown = answers
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"<h2>{method.upper()} {path}</h2>" in shown.text
            assert all(f"<td>{one['name']}</td>" in shown.text for one in operation.get("parameters", ()))
    assert "<td>window_max</td>" in shown.text
    assert "<td>priorities</td><td>as_sent, lower_first, higher_first</td>" in shown.text


def test_the_page_runs_nothing_and_needs_nothing_from_elsewhere(answers):
    _, shown = answers
    elements = Elements()
    elements.feed(shown.text)
    assert not {tag for tag, _ in elements.found} & {"script", "link", "img", "iframe", "form", "object", "base"}
    assert [attributes["href"] for _, attributes in elements.found if "href" in attributes] == [SCHEMA]
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    policy = dict(part.strip().partition(" ")[::2] for part in shown.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    (style,) = re.findall(r"<style>(.*?)</style>", shown.text, re.DOTALL)
    assert policy["style-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    assert policy.keys() == {"default-src", "base-uri", "form-action", "frame-ancestors", "style-src"}


def test_what_a_document_says_is_text_and_no_markup():
    hostile = "<script>x</script>\"'"
    operation = {
        "description": hostile,
        "parameters": [
            {
                "name": hostile,
                "description": hostile,
                "schema": {"type": hostile, "enum": [hostile], "default": hostile},
            }
        ],
    }
    document = {"info": {"title": hostile, "version": hostile}, "paths": {f"/{hostile}": {"get": operation}}}
    shown = reference.page(document, where=hostile)
    assert "<script" not in shown
    assert 'href="&lt;script' in shown


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer 1..9"),
        ({"type": "number", "exclusiveMinimum": 0}, "number 0.."),
        ({"anyOf": [{"type": "string"}, {"type": "string", "pattern": "x"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["a", "b"], "type": "string"}, "a, b"),
        ({}, "any"),
    ],
)
def test_kinds_in_words(schema, said):
    assert reference.kind(schema) == said

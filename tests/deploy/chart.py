"""The chart as Helm renders it, and what Kubernetes would say to each manifest."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

WHERE = "it comes with pip install '.[deploy]'"
helm_python: Any = pytest.importorskip("helm_python", reason=WHERE)
kubernetes_validate: Any = pytest.importorskip("kubernetes_validate", reason=WHERE)
jsonschema: Any = pytest.importorskip("jsonschema", reason=WHERE)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "concur-proxy"
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "examples").glob("*.yaml"))}
SCHEMAS = yaml.safe_load((Path(__file__).parent / "schemas.yaml").read_text())

Manifest = dict[str, Any]


class OneOfEach(yaml.SafeLoader):
    """Refuses a key that is given twice: Kubernetes would take either."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is given twice: {sorted(keys)}"
        return super().construct_mapping(node, deep=deep)


@cache
def loaded() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def render(values: dict[str, Any], *, name: str = "test") -> list[Manifest]:
    """Return every object that an install would make; raise what Helm says of values that are wrong."""
    loaded().validate_schema(values)
    texts = loaded().render(values, name=name, namespace="inference")
    found = [one for path, text in texts.items() if not path.endswith("NOTES.txt") for one in parse(text)]
    return sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"]))


def notes(values: dict[str, Any]) -> str:
    texts = loaded().render(values, name="test", namespace="inference")
    return next(text for path, text in texts.items() if path.endswith("NOTES.txt"))


def parse(text: str) -> list[Manifest]:
    return [one for one in yaml.load_all(text, Loader=OneOfEach) if one]


def newest() -> tuple[str, str]:
    """Return the newest minor version whose schemas are here, and one three minors older."""
    major, minor, *_ = kubernetes_validate.latest_version().split(".")
    return f"{major}.{minor}", f"{major}.{int(minor) - 3}"


def validate(manifest: Manifest, version: str) -> None:
    """Raise what is wrong with a manifest."""
    _validate(json.dumps(manifest), version)


@cache
def _validate(text: str, version: str) -> None:
    """Most manifests of two renderings are the same."""
    manifest = json.loads(text)
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    if kind not in SCHEMAS:
        kubernetes_validate.validate(manifest, version, strict=True)
        return
    whole = {
        "type": "object",
        "additionalProperties": False,
        "required": ["metadata", "spec"],
        "definitions": SCHEMAS["definitions"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": "#/definitions/metadata"},
            "spec": SCHEMAS[kind],
        },
    }
    jsonschema.validate(manifest, whole)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == kind]


def proxy_pod(manifests: list[Manifest]) -> Manifest:
    """Return the spec of the proxies' pods."""
    deployments = [one for one in of_kind(manifests, "Deployment") if not one["metadata"]["name"].endswith("-redis")]
    return deployments[0]["spec"]["template"]["spec"]

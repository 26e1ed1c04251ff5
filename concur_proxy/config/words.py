"""The settings tree in words: kinds, allowed values, defaults, variables and flags of every setting."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from concur_proxy.config.tree import BackendSettings, Section, Settings

FLAGS = {
    "backends": "--backend",
    "server.host": "--host",
    "server.port": "--port",
    "control.law": "--law",
    "control.fixed.window": "--window",
    "gate.mode": "--observe",
    "state.url": "--state",
    "log.level": "--log-level",
    "log.format": "--log-format",
}
"""Settings that ``serve`` has a flag for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the tree; ``path`` is its key with dots, ``backends[].url`` for those of each backend."""

    path: str
    field: FieldInfo

    @property
    def key(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def environment(self) -> str | None:
        """The variable that sets it; None for what is set per backend."""
        return None if "[]" in self.path else variable(self.path.split("."))


def variable(parts: list[str]) -> str:
    return "CONCUR_" + "__".join(part.upper() for part in parts)


def section_of(annotation: object) -> type[Section] | None:
    """Return the part of the tree that an annotation stands for, None for a single setting."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def settings(section: type[Section] = Settings, prefix: str = "") -> Iterator[Setting]:
    """Yield every leaf in the order of the tree."""
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        if inner := section_of(field.annotation):
            yield from settings(inner, f"{path}.")
        elif path == "backends":
            yield Setting(path, field)
            yield from settings(BackendSettings, "backends[].")
        else:
            yield Setting(path, field)


def kind(field: FieldInfo) -> str:
    """Return the type in a word that a person would use."""
    return _kind(bare(field.annotation))


def allowed(field: FieldInfo) -> str:
    """Return which values a setting takes, in words; empty where the type says it all."""
    annotation = bare(field.annotation)
    if choices := _choices(annotation):
        return "one of " + ", ".join(choices)
    bounds = {name: getattr(part, name) for part in field.metadata for name in _BOUNDS if hasattr(part, name)}
    if "gt" in bounds:  # on top of a looser bound of the type
        bounds.pop("ge", None)
    words = " and ".join(_BOUNDS[name].format(_plain(bounds[name])) for name in _BOUNDS if name in bounds)
    if bounds.keys() == {"ge", "le"}:
        words = f"{_plain(bounds['ge'])} to {_plain(bounds['le'])}"
    return f"{words}, or null" if words and field.default is None else words


def default(field: FieldInfo) -> str:
    """Return the default as YAML; ``required`` where there is none."""
    if field.is_required():
        return "required"
    return _value(field.get_default(call_default_factory=True))


_BOUNDS = {
    "gt": "above {}",
    "ge": "at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "max_length": "at most {} entries",
}
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", SecretStr: "secret"}


def _plain(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def bare(annotation: Any) -> Any:
    """Return the type itself, without ``| None`` and without its checks."""
    if get_origin(annotation) in {Union, types.UnionType}:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return tuple(member.value for member in annotation)
    return ()


def _kind(annotation: Any) -> str:
    if _choices(annotation):
        return "word"
    if get_origin(annotation) is tuple:
        return "list of backends" if get_args(annotation)[0] is BackendSettings else "list of texts"
    if get_origin(annotation) is dict:
        value = bare(get_args(annotation)[1])
        kind = "settings" if issubclass(value, Section) else "names" if value is str else "numbers"
        return f"mapping of names to {kind}"
    return _WORDS[annotation]


def differences(loaded: Settings) -> list[tuple[str, str]]:
    """Return key and value of every setting that is not at its default; secrets as stars."""
    return list(_differences(loaded, Settings(), ""))


def _differences(section: Section, usual: Section | None, prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        default_value = getattr(usual, name) if usual else field.get_default()
        if isinstance(value, Section):
            yield from _differences(value, default_value, f"{prefix}{name}.")
        elif name == "backends":
            for number, backend in enumerate(value):
                yield from _differences(backend, None, f"backends[{number}].")
        elif value != default_value:
            yield f"{prefix}{name}", _value(value)


def _value(value: object) -> str:
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, dict):
        return json.dumps(value)
    return json.dumps(list(value)) if isinstance(value, tuple) else _plain(value)

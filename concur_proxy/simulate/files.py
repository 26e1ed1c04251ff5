"""Scenario files: found by name or path, read, checked, and whatever is wrong said with its file and line."""

from __future__ import annotations

import difflib
import gzip
import typing
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import UnionType
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from concur_proxy.errors import ConfigError
from concur_proxy.sim.data import coding_agents
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.workload import SessionScript, recorded

Loc = tuple[int | str, ...]


def _folder() -> Traversable:
    return files("concur_proxy.sim").joinpath("scenarios")


def scenario_names() -> list[str]:
    """Return the names of the scenarios that ship with the package."""
    return sorted(each.name.removesuffix(".yaml") for each in _folder().iterdir() if each.name.endswith(".yaml"))


def load_scenario(name: str | Path) -> Scenario:
    """Return a scenario of the package by its name, or one from a file by its path.

    ConfigError says everything that is wrong with it: file, line, key, value, and what is allowed.
    """
    text = str(name)
    if text in scenario_names():
        return parse(_folder().joinpath(f"{text}.yaml").read_text(encoding="utf-8"), f"{text}.yaml", text)
    path = Path(name)
    if not path.exists():
        raise ConfigError(_unknown(text))
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _unknown(text: str) -> str:
    names = scenario_names()
    match = difflib.get_close_matches(text, names, n=1)
    hint = f"; did you mean {match[0]}?" if match else ""
    return f"{text}: neither a scenario nor a file{hint}. All scenarios: concur-proxy simulate --list"


def load_recordings(path: Path | None) -> tuple[SessionScript, ...]:
    """Return recorded sessions: those of the package, or of a file with one JSON object a line, gzipped or not."""
    if path is None:
        return coding_agents()
    try:
        raw = path.read_bytes()
        return recorded((gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).splitlines())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{path}: holds no recorded sessions (one JSON object a line): {problem}") from None


def parse(text: str, source: str, name: str) -> Scenario:
    """Return the scenario that ``text`` describes; ``source`` is what errors call the file."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ConfigError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: must hold a scenario as 'key: value' lines; begin with `about:`")
    try:
        return Scenario.model_validate({"name": name, **data})
    except ValidationError as error:
        lines = dict(_lines(node, ()))
        problems = [_say(detail, source, lines) for detail in error.errors()]
        heading = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigError("\n  ".join([f"{heading} in the scenario:", *problems])) from None


def _lines(node: yaml.Node | None, loc: Loc) -> Iterator[tuple[Loc, int]]:
    """Yield the line of every key and every item of a list."""
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        children = [(index, item, item) for index, item in enumerate(node.value)]
    else:
        return
    for key, start, child in children:
        yield (*loc, key), start.start_mark.line + 1
        yield from _lines(child, (*loc, key))


def _say(detail: ErrorDetails, source: str, lines: dict[Loc, int]) -> str:
    loc = detail["loc"]
    known = next((lines[loc[:length]] for length in range(len(loc), 0, -1) if loc[:length] in lines), None)
    where = source if known is None else f"{source}:{known}"
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    shown = (
        "" if isinstance(detail["input"], dict | list | BaseModel) or detail["type"] == "missing" else detail["input"]
    )
    value = f" = {shown!r}" if shown != "" else ""
    return ": ".join(filter(None, [where, f"{key}{value}", _complaint(detail)]))


def _complaint(detail: ErrorDetails) -> str:
    if detail["type"] == "extra_forbidden":
        *parents, key = detail["loc"]
        names = list(_model(tuple(parents)).model_fields)
        match = difflib.get_close_matches(str(key), names, n=1)
        return f"unknown key; did you mean {match[0]}?" if match else f"unknown key; allowed here: {', '.join(names)}"
    if detail["type"] == "missing":
        return "is required"
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    message = detail["msg"]
    return message[0].lower() + message[1:]


def _model(loc: Loc) -> type[BaseModel]:
    """Return the part of a scenario that ``loc`` leads to."""
    model: type[BaseModel] = Scenario
    for key in loc:
        if isinstance(key, str) and key in model.model_fields:
            model = _inner(model.model_fields[key].annotation) or model
    return model


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is not None:
        return next((found for each in typing.get_args(annotation) if (found := _inner(each)) is not None), None)
    return None

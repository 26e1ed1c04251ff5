"""Read the settings from file, environment and flags, and say in one message everything that is wrong with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from concur_proxy.config.problems import Loc, describe, dotted, place, stray_variables
from concur_proxy.config.tree import Settings
from concur_proxy.config.words import FLAGS
from concur_proxy.errors import ConfigError


def load(path: str | Path | None = None, *, flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of defaults < YAML file < environment < ``flags`` (key with dots to value).

    Raises ``ConfigError`` with all problems at once: where each value comes from, its key, the value, what is allowed.
    """
    layers = [_from_file(Path(path))] if path is not None else []
    layers += [_from_environment(), _from_flags(flags or {})]
    problems = [problem for layer in layers for problem in layer.problems]
    settings = None
    try:
        settings = Settings.model_validate(_merged([layer.data for layer in layers]))
    except ValidationError as error:
        problems += [describe(detail, _source(layers, place(detail))) for detail in error.errors()]
    if settings is None or problems:
        raise ConfigError(_message(problems))
    return settings


def _message(problems: list[str]) -> str:
    heading = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{heading} in the configuration:", *problems])


@dataclass(frozen=True, slots=True)
class _Layer:
    data: dict[str, Any]
    sources: Mapping[Loc, str]
    """Where keys were set: file and line, variable or flag."""
    problems: tuple[str, ...] = ()


def _source(layers: list[_Layer], loc: Loc) -> str | None:
    """Return where the value at ``loc`` comes from: the strongest layer that has it, or else what is around it."""
    for length in range(len(loc), 0, -1):
        for layer in reversed(layers):
            if source := layer.sources.get(loc[:length]):
                return source
    return None


def _merged(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Lay later mappings over earlier ones; lists replace each other."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(value, dict) and isinstance(below, dict):
                result[key] = _merged([below, value])
            else:
                result[key] = value
    return result


# --- file ---


def _from_file(path: Path) -> _Layer:
    try:
        with path.open("rb") as stream:
            loader = yaml.SafeLoader(stream)
            node = loader.get_single_node()
            sources: dict[Loc, str] = {}
            twice = tuple(_note_lines(node, (), path, sources, set()))
            data = loader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        raise ConfigError(_not_yaml(path, error)) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(data, dict | None):
        raise ConfigError(f"{path}: must hold settings as 'key: value' lines")
    return _Layer(data or {}, sources, twice)


def _not_yaml(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    return (
        f"{where}: not valid YAML: {getattr(error, 'problem', None) or 'it holds characters that text does not have'}"
    )


def _note_lines(node: yaml.Node | None, loc: Loc, path: Path, sources: dict[Loc, str], seen: set[int]) -> Iterator[str]:
    """Note the line of every key, and yield a problem for each that is given twice (YAML would drop the first).

    Runs before construction, which folds merged keys (``<<``) in. ``seen`` ends the walk at aliases, even circular.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        children = [(index, item, item) for index, item in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        children = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    else:
        return
    for key, start, child in children:
        here, source = (*loc, key), f"{path}:{start.start_mark.line + 1}"
        if here in sources:
            yield f"{source}: {dotted(here)}: is given twice, first in {sources[here]}"
        sources[here] = source
        yield from _note_lines(child, here, path, sources, seen)


# --- environment ---


class _Environment(Settings, BaseSettings):
    """The tree again, for what pydantic-settings reads from the environment. Empty variables count as not set."""

    model_config = SettingsConfigDict(
        env_prefix="CONCUR_", env_nested_delimiter="__", env_ignore_empty=True, env_parse_none_str="null"
    )


class _EnvironmentSource(EnvSettingsSource):
    """Takes lists as comma-separated texts, too."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        """Return JSON as what it means and anything else as the items between its commas; never fail."""
        if value.lstrip().startswith(("[", "{")):
            try:
                return json.loads(value)
            except ValueError:
                return value  # validation refuses it, with its name
        return [item.strip() for item in value.split(",") if item.strip()]


def _from_environment() -> _Layer:
    ours = {name: value for name, value in os.environ.items() if name.upper().startswith("CONCUR_") and value}
    sources: dict[Loc, str] = {tuple(name.lower().removeprefix("concur_").split("__")): name for name in ours}
    return _Layer(_EnvironmentSource(_Environment)(), sources, tuple(stray_variables(ours)))


# --- flags ---


def _from_flags(flags: Mapping[str, Any]) -> _Layer:
    data: dict[str, Any] = {}
    for path, value in flags.items():
        *parents, key = path.split(".")
        section = data
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
    return _Layer(data, {tuple(path.split(".")): FLAGS.get(path, path) for path in flags})

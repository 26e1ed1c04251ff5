"""What is wrong with a setting, in words a person can act on. Secrets, and what may hold them, are never repeated."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from concur_proxy.config.tree import BackendSettings, Section, Settings
from concur_proxy.config.words import allowed, bare, kind, section_of, settings

Loc = tuple[int | str, ...]

CONFIG_VARIABLE = "CONCUR_CONFIG"
"""Names the file for ``serve --config``; not a setting itself."""


def dotted(loc: Loc) -> str:
    """Return a key's path as a person writes it: ``backends[0].url``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def place(detail: ErrorDetails) -> Loc:
    """Return where a problem is. Keys that YAML reads as numbers or truth values become texts again."""
    loc = detail["loc"]
    return (*loc[:-1], str(loc[-1])) if detail["type"] == "invalid_key" else loc


def describe(detail: ErrorDetails, source: str | None, *, root: type[Section] = Settings) -> str:
    """Return one problem with a section of the kind ``root``: source, key, value, and what is allowed."""
    loc = place(detail)
    section, field = _find(loc, root)
    value = f" = {detail['input']!r}" if _may_be_shown(detail, field) else ""
    key = f"{dotted(loc)}{value}"
    return ": ".join(filter(None, [source, key, _complaint(detail, section, field)]))


def _complaint(detail: ErrorDetails, section: type[Section], field: FieldInfo | None) -> str:
    if detail["type"] in {"extra_forbidden", "invalid_key"}:
        return unknown_key(str(detail["loc"][-1]), section.model_fields)
    if detail["type"] == "missing":
        return "is required"
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if field is None:
        return detail["msg"]
    if inner := section_of(field.annotation):
        return "must be a mapping of " + ", ".join(inner.model_fields)
    wanted = f"such as {field.examples[0]}" if field.examples else _requirement(kind(field), allowed(field))
    return f"must be {wanted}"


def _requirement(word: str, limits: str) -> str:
    if word == "word":
        return limits
    if word in {"text", "secret"}:
        return "text"
    if word == "true or false":
        return word
    return f"a {word}, {limits}" if limits else f"a {word}"


def unknown_key(key: str, names: Iterable[str]) -> str:
    """Return what to say of a key that is none of ``names``."""
    names = list(names)
    if match := difflib.get_close_matches(key, names, n=1):
        return f"unknown key; did you mean {match[0]}?"
    elsewhere = [setting.path for setting in settings() if setting.key == key]
    if elsewhere:
        return f"unknown key here; did you mean {' or '.join(elsewhere)}?"
    return "unknown key; allowed here: " + ", ".join(names)


def _find(loc: Loc, root: type[Section]) -> tuple[type[Section], FieldInfo | None]:
    """Return the section that ``loc`` is in and its field; no field for an unknown key."""
    section = root
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if field is not None and field is Settings.model_fields["backends"]:
            section = BackendSettings
        elif field is not None:
            section = section_of(field.annotation) or section
        field = section.model_fields.get(part)
    return section, field


def _may_be_shown(detail: ErrorDetails, field: FieldInfo | None) -> bool:
    value = detail["input"]
    if field is None or detail["type"] == "missing" or isinstance(value, dict | list | tuple | Section):
        return False
    is_part_of_secret = bare(field.annotation) is SecretStr or "@" in str(value) or "?" in str(value)  # of URLs
    is_whole_section = section_of(field.annotation) or field is Settings.model_fields["backends"]
    return not is_part_of_secret and not is_whole_section


def stray_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each ``CONCUR_`` variable that was meant as a setting but is none.

    What other programs own is let be: Kubernetes describes a service called concur-proxy in ``CONCUR_PROXY_PORT`` and
    the like. A variable counts as meant when it has a double underscore, or the name of a setting in another spelling.
    """
    meant = {setting.path.replace(".", "_"): setting for setting in settings() if setting.environment}
    meant |= {setting.key: setting for setting in reversed(meant.values()) if setting.path != "backends"}
    for name, value in environment.items():
        first, *rest = name.lower().removeprefix("concur_").split("__")
        if first in Settings.model_fields or name.upper() == CONFIG_VARIABLE or value.startswith(("tcp://", "udp://")):
            continue
        if rest:
            known = [setting.environment for setting in meant.values()]
            match = difflib.get_close_matches(name.upper(), [variable for variable in known if variable], n=1)
            yield f"{name}: unknown variable" + (f"; did you mean {match[0]}?" if match else "")
        elif first in meant:
            yield f"{name}: unknown variable; did you mean {meant[first].environment}?"

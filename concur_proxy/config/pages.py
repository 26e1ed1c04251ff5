"""The two texts that list every setting: ``config.example.yaml`` and the tables of docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator

from concur_proxy.config.tree import BackendSettings, Section, Settings
from concur_proxy.config.words import FLAGS, Setting, allowed, default, kind, section_of, settings

_PREAMBLE = """\
# Every setting of concur-proxy with its default. Take what you need: a file with `backends` alone is complete.
#
#     concur-proxy check config.yaml            says what is wrong with a file
#     concur-proxy serve --config config.yaml   uses it
#
# The environment comes before the file (CONCUR_GATE__MAX_WAIT_S=60), flags come before both.
"""

_EXAMPLE_URL = "http://10.0.0.5:8000"


def render_example() -> str:
    """Return the example file."""
    backends = Settings.model_fields["backends"]
    head = [_PREAMBLE, f"# {backends.description} A bare URL in place of a mapping will do.", "backends: []"]
    return "\n".join([*head, *_example_backend(), *_example_section(Settings, "")]) + "\n"


def _example_backend() -> Iterator[str]:
    yield "# backends:"
    for number, setting in enumerate(settings(BackendSettings)):
        value = _EXAMPLE_URL if setting.key == "url" else default(setting.field)
        yield f"#   {' ' if number else '-'} {setting.key}: {value}  # {_meaning(setting)}"


def _example_section(section: type[Section], indent: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if inner := section_of(field.annotation):
            yield f"\n{indent}# {field.description}\n{indent}{name}:"
            yield from _example_section(inner, indent + "  ")
        elif name != "backends":
            yield f"{indent}# {_meaning(Setting(name, field))}\n{indent}{name}: {default(field)}"


def _meaning(setting: Setting) -> str:
    """Return help text and allowed values in one line."""
    limits = allowed(setting.field)
    return f"{setting.field.description} ({limits})" if limits else str(setting.field.description)


def render_reference() -> str:
    """Return one Markdown table per section of the tree, in the order of the tree."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings():
        group = "backends" if setting.path == "backends" else setting.path.rpartition(".")[0]
        groups.setdefault(group.removesuffix("[]"), []).append(setting)
    return "\n".join(_table(group, members) for group, members in groups.items())


def _table(group: str, members: list[Setting]) -> str:
    head = ["key", "type", "range", "default", "environment", "flag", "meaning"]
    rows = [head, ["---"] * len(head), *([*_row(setting)] for setting in members)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"### `{group}`\n\n{_about(group)}\n\n{table}\n"


def _about(group: str) -> str:
    section: type[Section] = Settings
    *parents, name = group.split(".")
    for parent in parents:
        section = section_of(section.model_fields[parent].annotation) or section
    return str(section.model_fields[name].description)


def _row(setting: Setting) -> Iterator[str]:
    yield f"`{setting.path}`"
    yield kind(setting.field)
    yield allowed(setting.field)
    yield f"`{default(setting.field)}`"
    yield f"`{setting.environment}`" if setting.environment else ""
    yield f"`{FLAGS[setting.path]}`" if setting.path in FLAGS else ""
    yield str(setting.field.description)

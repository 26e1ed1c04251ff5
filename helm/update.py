"""Write what follows from elsewhere: the chart's version and README, and deploy/kubernetes.

    python helm/update.py

A test fails where this was forgotten. Needs the extra `deploy`.
"""  # noqa: INP001 - a script

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import helm_python
import yaml

from concur_proxy import __version__

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "concur-proxy"
PLAIN = ROOT / "deploy" / "kubernetes"
HEAD = """\
# Rendered from helm/concur-proxy with {values}, for those who use no Helm: `python helm/update.py`.
# Set the image and where your engines are, then: kubectl apply -f {name}
"""
README = """\
# concur-proxy

The chart of [concur-proxy](../../README.md). How to install it is in [docs/deploy.md](../../docs/deploy.md#kubernetes);
[examples/](examples) has values for one engine, a fleet, discovery, several replicas, and routers behind the proxy.

| value | default | meaning |
|---|---|---|
{rows}
"""


def main() -> None:
    for path, text in written():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def written() -> Iterator[tuple[Path, str]]:
    """Yield every file that follows from others, and what is in it."""
    chart = CHART / "Chart.yaml"
    versioned = re.sub(r"^version: .*", f"version: {__version__}", chart.read_text(), flags=re.MULTILINE)
    yield chart, re.sub(r"^appVersion: .*", f'appVersion: "{__version__}"', versioned, flags=re.MULTILINE)
    yield CHART / "README.md", README.format(rows="\n".join(rows()))
    for name in ("single-engine", "replicas"):
        head = HEAD.format(values=f"examples/{name}.yaml", name=f"deploy/kubernetes/{name}.yaml")
        yield PLAIN / f"{name}.yaml", head + plain(yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text()))


def plain(values: dict[str, object]) -> str:
    """Return the manifests without what is Helm's own."""
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render({**values, "tests": {"enabled": False}}, name="concur-proxy", namespace="default")
    texts = [text.strip() for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt") and text.strip()]
    text = "\n".join(text if text.startswith("---") else f"---\n{text}" for text in texts) + "\n"
    return re.sub(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", "", text, flags=re.MULTILINE)


def rows() -> Iterator[str]:
    """Yield a line for each value that values.yaml has a meaning of: the comment above it that begins with ``--``."""
    parents: list[tuple[int, str]] = []
    meaning = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            meaning = comment.removeprefix("# -- ")
        elif comment.startswith("#") and meaning:
            meaning += " " + comment.removeprefix("# ")
        elif match := re.match(r"( *)([A-Za-z]+):(.*)", line):
            indent, key, value = len(match[1]), match[2], match[3].strip()
            parents = [*((depth, name) for depth, name in parents if depth < indent), (indent, key)]
            if meaning:
                path = ".".join(name for _, name in parents)
                yield f"| `{path}` | {f'`{value}`' if value else ''} | {meaning} |"
            meaning = ""
        elif not comment:
            meaning = ""


if __name__ == "__main__":
    main()

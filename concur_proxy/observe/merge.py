"""One page of metrics made of those of several processes: each sample says which one it is of. Pure."""

from __future__ import annotations

from collections.abc import Mapping

END = "# EOF"


def merge(pages: Mapping[str, str]) -> str:
    """Return a page with the samples of all pages, by ``worker``; each family stands there once."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    ends = False
    for worker, page in pages.items():
        samples: list[str] = []
        for line in page.split("\n"):  # nothing else ends a line, though other characters of a label may look like it
            if line == END:
                ends = True
            elif line.startswith("# "):
                head, samples = families.setdefault(line.split(" ", 3)[2], ([], []))
                if line not in head:
                    head.append(line)
            elif line:
                samples.append(_labelled(line, worker))
    lines = [line for head, samples in families.values() for line in (*head, *samples)]
    return "\n".join([*lines, END] if ends else lines) + "\n"


def _labelled(sample: str, worker: str) -> str:
    name = sample[: min(found for found in (sample.find("{"), sample.find(" ")) if found >= 0)]
    rest = sample[len(name) :]
    label = f'worker="{worker}"'
    return f"{name}{{{label},{rest[1:]}" if rest.startswith("{") else f"{name}{{{label}}}{rest}"

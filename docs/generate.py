"""Write what is generated from the code: ``python docs/generate.py``. A test fails where this was forgotten."""  # noqa: INP001 - a script

from __future__ import annotations

from pathlib import Path

from concur_proxy.config.pages import render_example, render_reference
from concur_proxy.observe.pages import render_metrics

ROOT = Path(__file__).parents[1]
END = "<!-- end -->\n"


def main() -> None:
    (ROOT / "config.example.yaml").write_text(render_example())
    put("configuration.md", "settings", render_reference())
    put("metrics.md", "metrics", render_metrics())


def put(name: str, part: str, text: str) -> None:
    """Write the generated part of a page."""
    page, start = ROOT / "docs" / name, f"<!-- generated: {part} -->\n"
    before, _, rest = page.read_text().partition(start)
    page.write_text(f"{before}{start}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()

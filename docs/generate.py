"""Write what is generated from the code: ``python docs/generate.py``. A test fails where this was forgotten."""  # noqa: INP001 - a script

from __future__ import annotations

from pathlib import Path

from concur_proxy.config.pages import render_example, render_reference

ROOT = Path(__file__).parents[1]
START, END = "<!-- generated: settings -->\n", "<!-- end -->\n"


def main() -> None:
    (ROOT / "config.example.yaml").write_text(render_example())
    page = ROOT / "docs" / "configuration.md"
    before, _, rest = page.read_text().partition(START)
    page.write_text(f"{before}{START}\n{render_reference()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()

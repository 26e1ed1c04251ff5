"""An examination on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from concur_proxy.doctor.examination import Examination
from concur_proxy.doctor.findings import Finding, Weight

STYLES = {Weight.WRONG: "bold red", Weight.MISSING: "bold yellow", Weight.NOTE: "cyan"}
WEIGHTS = tuple(Weight)


def render(examination: Examination) -> RenderableType:
    """Return what was looked at, the findings with the worst first, and a last word."""
    findings = sorted(examination.findings, key=lambda finding: WEIGHTS.index(finding.weight))
    looked_at = [Text(f"looked at {line}", style="dim") for line in examination.looked_at]
    return Group(*looked_at, *map(_finding, findings), Text(_last_word(examination)))


def _finding(finding: Finding) -> RenderableType:
    heading = Text.assemble((finding.weight.value, STYLES[finding.weight]), f"  {finding.about}: {finding.what}")
    return Group(Text(), heading, Text(f"  -> {finding.remedy}"))


def _last_word(examination: Examination) -> str:
    if not examination.findings:
        return "\nnothing to find fault with"
    counts = {weight: sum(finding.weight is weight for finding in examination.findings) for weight in Weight}
    return "\n" + ", ".join(f"{count} {weight.value}" for weight, count in counts.items() if count)

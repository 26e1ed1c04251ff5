import io

import pytest
from rich.console import Console

from concur_proxy.bench.pairs import ratio
from concur_proxy.bench.report import Progress, Tally
from concur_proxy.bench.tables import agents_table, comparison_table, count, percent, progress_text, ratio_text, seconds
from concur_proxy.model import Usage


def text_of(renderable):
    out = io.StringIO()
    Console(file=out, width=140).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        (percent, None, "-"),
        (percent, 0.1234, "12.3%"),
        (count, None, "-"),
        (count, 1234567.4, "1,234,567"),
        (seconds, None, "-"),
        (seconds, 1.234, "1.23 s"),
        (seconds, 12.34, "12.3 s"),
    ],
)
def test_figures_as_text(text, value, shown):
    assert text(value) == shown


def test_a_comparison_as_a_table():
    tally = Tally(1, 1)
    tally.answered(Usage(1000, 50, 250), reusable=0, duration_s=1.0, ttft_s=None)
    runs = {"direct": [tally.report(2.0), tally.report(4.0)], "proxied": [tally.report(1.0), tally.report(2.0)]}
    shown = text_of(comparison_table(runs, {"proxied": ratio([50.0, 25.0], [25.0, 12.5])}))
    assert shown.count("direct ") == shown.count("proxied ") - 1 == 2
    assert "25.0%" in shown
    assert "proxied / direct: 2.00 times the useful tokens/s" in shown


def test_a_single_way_has_no_ratio():
    shown = text_of(comparison_table({"direct": [Tally(1, 1).report(2.0)]}, {}))
    assert "/ direct" not in shown


def test_how_it_went_for_the_agents():
    tally = Tally(2, 2, objective_s=1.0)
    tally.answered(Usage(1000, 50, 250), reusable=0, duration_s=3.0, ttft_s=0.5)
    tally.session_ended("a", 12.0, completed=True, turns_per_s=0.5)
    tally.session_ended("b", 1.0, completed=False)
    shown = text_of(agents_table({"direct": [tally.report(4.0)]}))
    for figure in ("12.0 s", "0.50 s", "50.0%", "0.25"):
        assert figure in shown


def test_ratios_in_words():
    assert ratio_text(None) == "no ratio"
    assert ratio_text(ratio([2.0], [1.0])) == "2.00 times the useful tokens/s (least of 1: 2.00)"
    assert "above" in ratio_text(ratio([2.0, 2.1], [1.0, 1.0]))


def test_progress_in_words():
    progress = Progress(
        elapsed_s=2.0, turns=9, turns_done=3, active=2, prompt_tokens=10, cached_tokens=5, output_tokens=8
    )
    assert progress_text(progress) == "3 of 9 turns, 4 tokens/s, hit rate 50.0%, 2 in flight"

import io
from dataclasses import replace

import pytest
from rich.console import Console

from concur_proxy.bench.pairs import ratio
from concur_proxy.bench.report import Progress, Tally
from concur_proxy.bench.tables import (
    comparison_table,
    count,
    interval_text,
    percent,
    progress_text,
    ratio_table,
    seconds,
    troubles,
)
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


def row(shown, name):
    return next(line for line in shown.splitlines() if f" {name} " in line)


def test_a_comparison_has_a_column_for_each_way_with_mean_least_and_most():
    tally = Tally(1, 1)
    tally.answered(Usage(1000, 50, 250), reusable=0, duration_s=1.0, ttft_s=None)
    runs = {"direct": [tally.report(2.0), tally.report(4.0)], "proxied": [tally.report(1.0), tally.report(1.0)]}
    shown = text_of(comparison_table(runs))
    assert "direct" in shown
    assert "2 runs" in shown
    assert row(shown, "hit rate").count("25.0%") == 2
    assert "3.00 s" in row(shown, "whole run")
    assert "(2.00 s to 4.00 s)" in shown
    assert "good turns/s" not in shown  # nobody named an objective
    assert "first token" not in shown  # nothing was streamed


def test_how_it_went_for_the_agents():
    tally = Tally(2, 2, objective_s=1.0)
    tally.answered(Usage(1000, 50, 250), reusable=0, duration_s=3.0, ttft_s=0.5)
    tally.session_ended("a", 12.0, completed=True, turns_per_s=0.5)
    tally.session_ended("b", 1.0, completed=False)
    shown = text_of(comparison_table({"direct": [tally.report(4.0)]}))
    wanted = {
        "job mean": "12.0 s",
        "job p99": "12.0 s",
        "first token p95": "0.50 s",
        "longest wait": "0.50 s",
        "fairness": "50.0%",
        "good turns/s": "0.25",
        "failed agents": "1",
    }
    for name, figure in wanted.items():
        assert figure in row(shown, name)


def test_a_table_fits_into_eighty_columns():
    tally = Tally(1, 1)
    tally.answered(Usage(10**6, 5000, 250), reusable=0, duration_s=100.0, ttft_s=None)
    out = io.StringIO()
    Console(file=out, width=80).print(comparison_table({"direct": [tally.report(200.0)], "proxied": []}))
    assert "…" not in out.getvalue()


def test_ratios_have_a_row_for_each_figure_with_their_interval():
    ratios = {"proxied": {"turns/s": ratio([2.0, 2.1], [1.0, 1.0]), "job mean": None}}
    shown = text_of(ratio_table(ratios, "direct"))
    assert "How many times direct's" in shown
    assert "2.05" in row(shown, "turns/s")
    assert "2.00, 2.10" in row(shown, "turns/s")
    assert "job mean" not in shown
    assert interval_text(ratio([2.0], [1.0])) == "one pair: unknown"
    assert interval_text(ratio([2.0, 2.1], [1.0, 1.0])) == "1.76 to 2.39"


def test_what_went_wrong_is_said_with_how_often():
    tally = Tally(2, 2)
    tally.failed("status 400: too long")
    runs = {"direct": [tally.report(1.0), tally.report(1.0, ended_early="interrupted")], "proxied": [tally.report(1)]}
    assert list(troubles(runs)) == [
        "direct: a run was ended early (interrupted); its figures are those until then.",
        "direct: 2 turns failed: status 400: too long",
        "proxied: 1 turn failed: status 400: too long",
    ]


def test_progress_in_words():
    progress = Progress(
        elapsed_s=2.0, turns=9, turns_done=3, active=2, prompt_tokens=10, cached_tokens=5, output_tokens=8
    )
    assert progress_text(progress) == "3 of 9 turns, 4 tokens/s, hit rate 50.0%, 2 in flight"
    assert progress_text(replace(progress, errors=1)).endswith("2 in flight, 1 failed")

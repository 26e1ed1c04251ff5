"""The proxy on a terminal again and again, over its absence."""

from __future__ import annotations

import pytest
from rich.console import Console

from concur_proxy.admin.reports import HeldReport, HistoryReport, Queue, SessionState
from concur_proxy.admin.watch import spark, watch
from concur_proxy.errors import ConcurError
from concur_proxy.history import Moment
from tests.admin.test_view import STATUS

UNKNOWN = [None, None]


class Client:
    """Answers from a list, one for each picture; an error is raised."""

    url = "http://proxy"

    def __init__(self, *statuses):
        self.statuses = list(statuses)

    def status(self):
        status = self.statuses.pop(0)
        if isinstance(status, Exception):
            raise status
        return status

    def queue(self, *, limit):
        turn = HeldReport(
            session="[/bold]s1", state=SessionState.PAUSED, rule="header", waited_s=65, left_s=475, footprint_tokens=9
        )
        return Queue(total=7, turns=[turn])

    def history(self, *, backend, span_s, points):
        self.span_s = span_s
        series = dict.fromkeys((*Moment._fields, "hit_rate"), UNKNOWN)
        series |= {"active": [2.0, 4.0], "window_sessions": [4.0, 12.4], "hit_rate": [None, 0.75]}
        return HistoryReport(
            now=20, interval_s=10, span_s=span_s, backend=None, backends=[], at=[10, 20], series=series
        )


def shown(client, pictures):
    console, pauses = Console(width=100, record=True), []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == pictures:
            raise KeyboardInterrupt

    with console.capture() as captured:
        watch(client, console, every_s=2.0, pause=pause)
    assert pauses == [2.0] * pictures
    return captured.get()


def test_a_picture_has_status_history_and_who_waits():
    client = Client(STATUS)
    text = shown(client, 1)
    assert client.span_s == 3600.0
    assert "law aimd (counts sessions)" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["active", "sessions", "▅█", "4"] in lines
    assert ["window", "▃█", "12"] in lines
    assert ["hit", "rate", "▆", "75%"] in lines
    assert ["[/bold]s1", "paused", "1", "min", "5", "s", "7", "min", "55", "s"] in lines
    assert "waiting turns: 7" in text


def test_a_proxy_that_is_away_is_asked_again():
    away = ConcurError("no answer from http://proxy")
    text = shown(Client(STATUS, away), 2)
    assert "no answer from http://proxy" in text
    assert "law aimd" in text  # what was seen last
    text = shown(Client(away, STATUS), 2)
    assert "no answer" not in text
    assert "law aimd" in text


@pytest.mark.parametrize(
    ("values", "most", "bars"),
    [([0, 1, None, 8], 8, "▁▂ █"), ([9], 8, "█"), ([0, 0], 0, "▁▁"), ([], 1, ""), ([0.5], 1.0, "▅")],
)
def test_bars_go_from_nothing_to_the_most(values, most, bars):
    assert spark(values, most) == bars

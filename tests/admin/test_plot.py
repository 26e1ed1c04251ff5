"""Pictures of a history: one unit per axis, gaps where the proxy was away, plain words where it cannot be."""

from __future__ import annotations

import importlib
import math
import sys

import pytest

from concur_proxy import pictures
from concur_proxy.admin import plot
from concur_proxy.admin.reports import HistoryReport
from concur_proxy.errors import ConcurError, ConfigError
from concur_proxy.history import Moment
from tests.admin.test_view import serving


def report(**series):
    times = [1000.0, 1010.0, 1020.0, 1100.0, 1110.0]
    known = {name: [float(number) for number in range(5)] for name in ("active", "held", "footprint_tokens")}
    every = {name: [None] * 5 for name in (*Moment._fields, "hit_rate")} | known | series
    return HistoryReport(now=1110, interval_s=10, span_s=3600, backend=None, backends=["a"], at=times, series=every)


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_is_written(tmp_path, suffix, start):
    path = tmp_path / f"day.{suffix}"
    pictures.check(path)
    plot.draw(path, report(hit_rate=[0.5] * 5))
    assert path.read_bytes().startswith(start)


def test_sessions_and_tokens_never_share_an_axis():
    tokens = {name for name in Moment._fields if "tokens" in name}
    for panel in plot.PANELS:
        names = {line[0] for line in panel.lines}
        assert names <= tokens or not names & tokens
        assert len({name.endswith("per_s") for name in names}) == 1


def test_axes_have_names_and_only_what_is_known_is_drawn(tmp_path, monkeypatch):
    made = []
    figure = importlib.import_module("matplotlib.figure").Figure
    monkeypatch.setattr(
        pictures, "figure", lambda width, height: made.append(figure(figsize=(width, height))) or made[-1]
    )
    plot.draw(tmp_path / "day.png", report(congestion=[1.0] * 5))
    axes = made[0].axes
    assert [axis.get_ylabel() for axis in axes] == ["sessions", "KV tokens", "congestion signal"]
    assert axes[-1].get_xlabel() == "time (UTC)"
    assert [line.get_label() for line in axes[0].lines] == ["active sessions", "turns waiting"]


def test_a_time_without_moments_is_a_gap():
    times, values = plot._broken(report(active=[1.0, None, 3.0, 4.0, 5.0]), "active")
    assert len(times) == len(values) == 6
    assert [math.isnan(value) for value in values] == [False, True, False, True, False, False]


def test_a_file_is_as_good_as_a_proxy(tmp_path):
    saved = report()
    path = tmp_path / "history.json"
    path.write_text(saved.model_dump_json())
    assert plot.read_history(str(path), token=None, backend=None, span_s=3600) == saved
    assert plot.read_history(str(path), token=None, backend=None, span_s=15).at == [1100.0, 1110.0]
    with pytest.raises(ConfigError, match="the file has all backends together only"):
        plot.read_history(str(path), token=None, backend="a", span_s=3600)
    with serving(200, saved.model_dump_json()) as (url, seen):
        assert plot.read_history(url, token="t", backend="a", span_s=60) == saved
    assert seen == [("/concur/history?span_s=60&points=2000&backend=a", "Bearer t")]


def test_what_cannot_be_is_said_before_anything_is_asked(tmp_path):
    with pytest.raises(ConfigError, match=r"must end in one of .*\.png"):
        pictures.check(tmp_path / "day.txt")
    with pytest.raises(ConfigError, match="there is no folder"):
        pictures.check(tmp_path / "nowhere" / "day.png")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ConfigError, match="not what /concur/history answers"):
        plot.read_history(str(tmp_path / "other.json"), token=None, backend=None, span_s=60)
    with pytest.raises(ConfigError, match=r"--from no-such-file\.json: there is no such file"):
        plot.read_history("no-such-file.json", token=None, backend=None, span_s=60)
    with pytest.raises(ConcurError, match=r"no answer from http://127\.0\.0\.1:9"):
        plot.read_history("127.0.0.1:9", token=None, backend=None, span_s=60)
    with pytest.raises(ConfigError, match="nothing is remembered"):
        plot.draw(tmp_path / "day.png", report(active=[None] * 5, held=[None] * 5, footprint_tokens=[None] * 5))


def test_without_matplotlib_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'concur-proxy\[plot\]'"):
        pictures.check(tmp_path / "day.png")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("24h", 86_400), ("1.5h", 5400), ("90s", 90)])
def test_spans(text, seconds):
    assert plot.read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "25h", "0h", "-1h", "1d", "h"])
def test_wrong_spans(text):
    with pytest.raises(ConfigError, match="30m or 6h"):
        plot.read_span(text)

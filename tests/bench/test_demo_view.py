import io

from rich.console import Console

from concur_proxy.bench.demo import AGENTS, ENGINE
from concur_proxy.bench.demo_view import DemoView, ProxyState, cells, intro, line, verdict
from concur_proxy.bench.report import Progress, Tally
from concur_proxy.model import Usage
from concur_proxy.sim.options import deploy

STATUS = {"held": 4, "backends": [{"window": 12.0, "running": 3, "idle": 7}]}
PROGRESS = Progress(
    elapsed_s=1.0, turns=10, turns_done=4, active=6, prompt_tokens=10, cached_tokens=9, output_tokens=50
)


def shown_by(use, *, terminal):
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal)
    with DemoView(console, started_at=0.0) as view:
        use(view)
    return out.getvalue()


def report(wall_s, cached):
    tally = Tally(1, 1)
    tally.answered(Usage(10_000, 100, cached), reusable=9_000, duration_s=1.0, ttft_s=None)
    return tally.report(wall_s)


def test_what_the_proxy_tells():
    assert ProxyState.of(STATUS) == ProxyState(window=12.0, active=10, held=4)
    assert ProxyState.of({}) == ProxyState.of({"backends": []}) == ProxyState()


def test_a_row_of_figures():
    assert cells(PROGRESS, ProxyState.of(STATUS)) == ("4/10", "50", "90.0%", "12", "10", "4")
    assert cells(PROGRESS, ProxyState()) == ("4/10", "50", "90.0%", "-", "6", "-")
    assert line(PROGRESS, ProxyState()) == "turns 4/10, tokens/s 50, hit rate 90.0%, active 6"


def test_without_a_terminal_there_is_a_line_now_and_then():
    def use(view):
        view.begin("straight")
        for elapsed_s in range(12):
            view.show(Progress(elapsed_s=elapsed_s, turns=10, turns_done=elapsed_s))
        view.ended(report(12.0, 0))

    lines = shown_by(use, terminal=False).splitlines()
    assert [text[:7] for text in lines] == ["  0.0 s", "  5.0 s", " 10.0 s", " 12.0 s"]
    assert lines[-1].endswith("straight: done")


def test_a_terminal_shows_both_ways_moving():
    def use(view):
        view.begin("straight")
        view.show(PROGRESS)
        view.begin("proxied")
        view.show(PROGRESS, ProxyState.of(STATUS))
        view.ended(report(12.0, 0))

    shown = shown_by(use, terminal=True)
    for text in ("straight", "proxied", "window", "90.0%", "4/10"):
        assert text in shown


def test_the_introduction_says_what_is_played_and_whose_recordings_they_are():
    text = intro(AGENTS.scripts(), deploy(ENGINE))
    assert "80 recorded coding agents" in text
    assert "profile laptop" in text
    assert "Apache License 2.0" in text


def test_the_verdict_compares():
    out = io.StringIO()
    Console(file=out, width=100).print(verdict(report(40.0, 0), report(20.0, 9_000)))
    text = out.getvalue()
    for expected in ("2.00 times", "90.0%", "9,000", "40.0 s", "20.0 s"):
        assert expected in text


def test_the_verdict_tells_what_went_wrong():
    broken = Tally(1, 1)
    broken.failed("status 500: no")
    out = io.StringIO()
    Console(file=out, width=100).print(verdict(broken.report(1.0), report(1.0, 0)))
    assert "straight: 1 x status 500: no" in out.getvalue()

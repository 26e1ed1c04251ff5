import io
import json
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from concur_proxy.cli import app
from concur_proxy.errors import ConfigError
from concur_proxy.simulate import scenario_names
from concur_proxy.simulate.command import SimulateOptions, simulate

SMALL = """\
about: twelve agents that need three times what there is
backends:
  - engine:
      kv_tokens: 16_000
      cost: {a: 0.02, b: 5.0e-4, c: 3.0e-5, d: 1.0e-7}
agents:
  - sessions: 12
    turns: 5
    first_prompt: 1500
    think_s: {exponential: 1}
"""


START = """
import signal, sys, time
from concur_proxy.simulate import command, runs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background has it ignored
watch = runs._watch
def watched(futures, shares, on_share):
    while not all(shares):
        time.sleep(0.01)
    print("runs", file=sys.stderr, flush=True)
    watch(futures, shares, on_share)
runs._watch = watched
from rich.console import Console
options = command.SimulateOptions(scenarios=[sys.argv[1]], laws=["unlimited", "fixed:3"], jobs=2)
sys.exit(command.simulate(options, Console()))
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def invoke(*arguments):
    return CliRunner().invoke(app, ["simulate", *arguments])


def run(small, width=100, **options):
    out = io.StringIO()
    status = simulate(SimulateOptions(scenarios=[small], **options), Console(file=out, width=width))
    return status, out.getvalue()


def test_list_names_every_scenario():
    listed = invoke("--list")
    assert listed.exit_code == 0
    assert all(name in listed.output for name in scenario_names())


def test_the_table_compares_laws_with_the_best_window_of_a_sweep(small):
    status, text = run(small, laws=["unlimited", "aimd/eager"], sweep="fixed", seeds=2, jobs=1)
    assert status == 0
    assert "means of 2 seeds" in text
    assert "fixed windows: 1:" in text
    (line,) = [line for line in text.splitlines() if "against fixed:" in line]
    ratios = [float(cell) for cell in line.split("│")[2:-1]]
    assert ratios[-1] == 1.0
    assert ratios[0] > 1.0


def test_many_laws_are_told_in_tables_that_fit(small):
    _, text = run(small, width=60, laws=["unlimited", "fixed:2", "fixed:3", "requests:4"], jobs=1)
    assert text.count("makespan, s") == 2


def test_more_replicas_are_played_with_the_same_agents(small):
    done = invoke(small, "--laws", "unlimited", "--replicas", "1,2", "--jobs", "1", "--json")
    one, two = (json.loads(done.stdout)[name][0]["runs"][0] for name in ("small x1", "small x2"))
    assert one["turns"] == two["turns"] == 60
    assert two["hit_rate"] > one["hit_rate"]
    assert two["ended_s"] < one["ended_s"]
    assert "per engine" in run(small, laws=["unlimited"], replicas=[2])[1]


@pytest.mark.parametrize("text", ["0", "two", "1,,2"])
def test_nonsense_replicas_are_refused(small, text):
    assert "whole numbers" in str(invoke(small, "--replicas", text).exception)


def test_replicas_that_leave_a_fault_without_its_engine_are_refused():
    with pytest.raises(ConfigError, match="no backend is called engine-2"):
        simulate(SimulateOptions(scenarios=["backend-lost"], laws=["unlimited"], replicas=[1]), Console())


def test_json_has_every_run_and_is_the_same_each_time_in_one_process_or_two(small):
    flags = (small, "--laws", "unlimited,fixed:3", "--seeds", "2", "--json", "--jobs")
    one, two = invoke(*flags, "1"), invoke(*flags, "2")
    assert one.exit_code == 0
    assert one.stdout == two.stdout
    rows = json.loads(one.stdout)["small"]
    assert [row["arm"] for row in rows] == ["unlimited", "fixed:3"]
    assert [each["seed"] for each in rows[0]["runs"]] == [0, 1]
    assert rows[1]["figures"]["hit_rate"]["mean"] > rows[0]["figures"]["hit_rate"]["mean"]


def test_a_plot_is_drawn(small, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    status, text = run(small, laws=["unlimited", "aimd"], sweep="fixed", plot=path, jobs=1)
    assert status == 0
    assert str(path) in text.replace("\n", "")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "said"), [("out.poem", "must end in one of"), ("nowhere/out.png", "no folder")])
def test_a_plot_that_cannot_be_written_is_refused_before_anything_runs(small, tmp_path, name, said):
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=said):
        run(small, laws=["unlimited"], plot=tmp_path / name)


def test_an_interruption_ends_all_runs_with_one_word(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(SMALL.replace("sessions: 12", "sessions: 5000\n    arrivals: {rate_per_s: 0.05}"))
    command = [sys.executable, "-c", START, str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as one:
        assert one.stderr.readline() == "runs\n"
        os.killpg(one.pid, signal.SIGINT)
        out, err = one.communicate(timeout=60)
    assert (one.returncode, out.strip(), err.strip()) == (130, "interrupted", "")


def test_a_run_that_is_given_up_is_said(small, tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(SMALL + "give_up_after_s: 20\n")
    status, text = run(str(path), laws=["fixed:1"])
    assert status == 1
    assert "unfinished" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"laws": ["amid"]}, "no such law"),
        ({"laws": ["aimd"], "sweep": "aimd"}, "--sweep fixed"),
        ({"laws": ["aimd"], "pause": "never"}, "eager or lazy"),
        ({"laws": ["aimd/nonsense"]}, "nonsense"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(small, options, said):
    with pytest.raises(ConfigError, match=said):
        run(small, **options)

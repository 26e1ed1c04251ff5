"""What the benchmark of the data path reads, reckons and writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.overhead import bodies, document, kernel, rounds
from bench.overhead.machine import Facts, processor
from bench.overhead.page import cell, number, page, rows, table, together
from bench.overhead.rounds import Figures
from bench.overhead.summary import Results, Spread, estimated
from bench.overhead.ways import LITELLM, NO_PROXY, OURS, RELAY, Way, all_ways, installed_version
from bench.proxy_overhead import GUARD, chosen, guard

STATUS = "Name:\tpython\nVmPeak:\t  99999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nThreads:\t1\n"
KEY = rounds.cpu_key("1 KB", rounds.MANY)


def test_the_memory_of_a_process():
    assert kernel.parse_status(STATUS) == kernel.Memory(now=1 << 20, peak=2 << 20)


def test_a_thread_of_the_kernel_has_no_memory():
    assert kernel.parse_status("Name:\tkthreadd\nThreads:\t1\n") == kernel.Memory(0, 0)


def test_our_own_memory_is_what_the_kernel_says():
    found = kernel.memory([os.getpid()])
    assert 1 << 20 < found.now <= found.peak


BUSY = "sum(range(3_000_000)); print('done', flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_the_time_of_a_tree_is_that_of_its_processes_and_ends_with_them():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "done\n"
        pids = kernel.tree(parent.pid)
        assert len(pids) == 2
        assert pids[0] == parent.pid
        one, other = (kernel.cpu_s([pid]) for pid in pids)
        assert min(one, other) > 0
        assert kernel.cpu_s(pids) >= one + other
        parent.communicate("\n")
    assert kernel.cpu_s(pids) == 0


def test_a_proxy_gets_a_core_of_its_own():
    cores = kernel.Cores.split({0, 1, 5})
    assert (cores.proxy, cores.rest) == ({5}, {0, 1})
    with pytest.raises(ValueError, match="two cores"):
        kernel.Cores.split({3})


def test_children_stay_on_the_cores_on_which_they_were_started():
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with kernel.on_cores(one):
        told = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert told.stdout.strip() == str(one)
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 20])
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_is_a_chat_of_the_size_that_was_asked_for(size, stream):
    start, end = bodies.chat(size, stream=stream)
    body = start + b"%010d" % 7 + end
    assert len(body) == size
    told = json.loads(body)
    assert told["stream"] is stream
    assert [message["role"] for message in told["messages"]][0::100][0] == "system"
    assert told["messages"][-1]["content"].endswith("0000000007")
    assert len(told["messages"]) > size / (2 * bodies.MESSAGE_BYTES)


def test_a_body_that_is_too_small_for_a_chat():
    with pytest.raises(ValueError, match="100 bytes"):
        bodies.chat(100)


def test_a_request_tells_the_length_that_its_body_has():
    request = bodies.request("h:1", "agent-3", 2000)
    head, _, body = (request.start + request.turn(12345)).partition(b"\r\n\r\n")
    assert b"Content-Length: 2000" in head
    assert b"X-Session-ID: agent-3" in head
    assert len(body) == 2000


def figures(**values):
    return Figures({KEY if name == "cpu" else name: value for name, value in values.items()})


def results(**ways):
    found = Results()
    for name, each in ways.items():
        for figures in each:
            found.add({"none": NO_PROXY, "ours": OURS}.get(name, name), figures)
    return found


def test_medians_with_the_least_and_the_most():
    found = results(ours=[figures(cpu=3e-6), figures(cpu=1e-6), figures(cpu=2e-6)])
    assert found.spread(OURS, KEY) == Spread(2e-6, 1e-6, 3e-6)
    assert found.spread(OURS, rounds.CHUNK) is None


def test_latency_is_compared_within_a_round():
    found = results(
        none=[figures(p50=1.0), figures(p50=5.0), figures()],
        ours=[figures(p50=3.0), figures(p50=6.0), figures(p50=9.0)],
    )
    assert found.added(OURS, "p50") == Spread(1.5, 1.0, 2.0)


def test_the_ratio_of_two_ways_needs_both():
    found = results(ours=[figures(cpu=30e-6)], relay=[figures(cpu=10e-6)])
    assert found.ratio(OURS, RELAY, KEY) == pytest.approx(3)
    assert found.ratio(OURS, "nginx", KEY) is None


def test_the_guard_lets_pass_what_is_within_the_band():
    assert guard(results(ours=[figures(cpu=GUARD * 10e-6)], relay=[figures(cpu=10e-6)])) is None


def test_the_guard_stops_what_costs_too_much_and_what_failed():
    assert "21.0 times" in guard(results(ours=[figures(cpu=210e-6)], relay=[figures(cpu=10e-6)]))
    failed = Figures(problems={rounds.CHUNK: "64 times status 500"})
    assert "status 500" in guard(results(ours=[failed], relay=[figures(cpu=10e-6)]))


def test_no_proxy_is_always_among_the_chosen_and_a_quick_run_leaves_out_the_slow_one():
    every = ways(**{NO_PROXY: "", OURS: "1", "nginx": "1", LITELLM: "1"})
    names = lambda *args, **more: [way.name for way in chosen(every, *args, **more)]  # noqa: E731
    assert names("nginx", quick=False) == [NO_PROXY, "nginx"]
    assert names(None, quick=True) == [NO_PROXY, OURS, "nginx"]
    assert names(f"{LITELLM},nginx", quick=True) == [NO_PROXY, "nginx", LITELLM]
    with pytest.raises(SystemExit, match="nginks"):
        names("nginks", quick=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12, "0.1"), (12.34, "12.3"), (99.96, "100"), (123.4, "123"), (12345.6, "12,346"), (-3.21, "-3.2")],
)
def test_three_digits_that_mean_something(value, text):
    assert number(value) == text


def row(key):
    (found,) = [row for row in rows() if row.key == key]
    return found


def test_a_cell_has_the_median_and_the_spread():
    found = results(ours=[figures(cpu=80e-6), figures(cpu=90e-6), figures(cpu=200e-6)])
    assert cell(found, OURS, row(KEY)) == "**90.0** (80.0 to 200)"


def test_a_figure_that_failed_is_not_one_that_is_missing():
    failed = Figures(problems={KEY: "3 times status 503"})
    found = results(ours=[failed], none=[figures()])
    assert cell(found, OURS, row(KEY)) == "failed"
    assert cell(found, NO_PROXY, row(KEY)) == "-"


def test_who_is_too_slow_for_the_pace_has_no_latency_and_did_not_fail():
    slow = Figures(problems={rounds.P50: "does not reach 500 requests/s"})
    assert cell(results(ours=[slow], none=[figures(p50=1.0)]), OURS, row(rounds.P50)) == "-"


def test_a_rate_that_the_load_did_not_reach_is_marked():
    found = results(ours=[figures(rate=1000.0, busy=0.95)], nginx=[figures(rate=9000.0, busy=0.4)])
    assert not estimated(found, OURS)
    assert cell(found, OURS, row(rounds.RATE)) == "1,000"
    assert cell(found, "nginx", row(rounds.RATE)) == "≈ 9,000"


def test_streams_whose_events_came_together_are_named():
    found = results(ours=[Figures({rounds.READS: 0.75})], nginx=[Figures({rounds.READS: 0.99})])
    assert together(found, OURS) == "- concur-proxy: 25% of the streamed chunks came together with the one before."
    assert together(found, "nginx") is None


FACTS = Facts("python bench/x.py", 2, "A Processor", 2, 24.0, 0.5, "2026-01-02", ", commit abc")


def ways(**versions):
    return [Way(name, version, "some setup", lambda *_: None) for name, version in versions.items()]


def test_the_page_says_what_ran_where_and_what_is_missing():
    broken = Figures(problems={"start": "it does not listen: no port"})
    found = results(none=[figures(), figures()], one=[figures(cpu=1e-6), broken])
    text = page(found, ways(one="1.2", two=None), FACTS)
    for part in ("python bench/x.py", "A Processor", "2026-01-02", "2 rounds", "- one 1.2: some setup."):
        assert part in text
    assert "- two: not installed, left out." in text
    assert "- one, start: it does not listen: no port" in text


def test_every_row_of_the_table_has_a_cell_for_every_way():
    lines = table(results(none=[figures(p50=1.0)], ours=[figures()]))
    assert len(lines) == 2 + len(rows())
    assert {line.count("|") for line in lines} == {4}


def test_a_peer_that_is_not_installed_is_known_and_has_no_version(tmp_path):
    found = {way.name: way.version for way in all_ways(law="aimd", cache=tmp_path)}
    assert found["vllm-router"] is found["sglang-router"] is found["litellm"] is None
    assert found[OURS]
    assert found[NO_PROXY] == found[RELAY] == ""


def test_the_version_of_a_package_is_its_own_environment_s():
    assert installed_version(Path(sys.executable), "pytest") == pytest.__version__
    assert installed_version(Path(sys.executable), "no-such-package-here") is None


def test_a_block_of_a_page_is_replaced_and_nothing_else():
    before = "# A\n<!-- one -->\nold\n<!-- end -->\nmiddle\n<!-- two -->\nkept\n<!-- end -->\n"
    assert document.replaced(before, "one", "new\nlines\n") == before.replace("old", "new\nlines")
    assert document.replaced(document.replaced(before, "one", "x"), "one", "old") == before
    with pytest.raises(ValueError, match="three"):
        document.replaced(before, "three", "")


def test_the_processor_s_name():
    assert processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: x\n") == "Some CPU @ 2 GHz"

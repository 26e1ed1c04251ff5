#!/usr/bin/env python3
"""What each order of held turns is for, in simulated time: writes the tables of docs/queues.md.

    python bench/queues.py                       # prints them; about fifteen minutes on one core
    python bench/queues.py --write docs/queues.md
    python bench/queues.py --standard --write docs/queues.md   # the simulator's own scenarios, against fifo
    python bench/queues.py --law footprint --seeds 1
    python bench/queues.py --kept runs.json      # keeps each run as it is done; the next time goes on from there

The scenarios are in ``bench/queues/``. The real gate and the real law run over the engine model of ``concur-proxy
engine``; the same seed gives the same numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from concur_proxy.sim.agents import TurnDone
from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_scenario

HERE = Path(__file__).parent / "queues"
BLOCK = "measured: bench/queues.py"
"""Of the page."""
STANDARD = ("think-1s", "think-5s", "think-30s", "recorded-2m", "recorded-4m")
SURGE_S = range(600, 900)
"""When there are five times as many interactive agents in ``surge.yaml``."""

Figures = dict[str, float]
Read = Callable[[Result], Figures]


def load(name: str, *, only: int | None = None) -> Scenario:
    """Return a scenario, with all of its agents or only one part of them."""
    scenario = load_scenario(HERE / f"{name}.yaml")
    return scenario if only is None else scenario.model_copy(update={"agents": (scenario.agents[only],)})


def of_part(result: Result, part: int) -> list[TurnDone]:
    """Return the turns of one part of a scenario's agents; their names begin with its number."""
    return [turn for turn in result.turns if turn.session.startswith(f"{part}-")]


def seconds(turns: Sequence[TurnDone]) -> list[float]:
    """Return how long each answer took, from the question to its end, the shortest first."""
    return sorted(turn.done_at - turn.asked_at for turn in turns)


def p99(ordered: Sequence[float]) -> float:
    return ordered[max(0, -(-99 * len(ordered) // 100) - 1)] if ordered else float("nan")


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def jobs(result: Result) -> Figures:
    figures = result.figures
    return {
        "mean job s": figures.job_mean_s,
        "p99 job s": figures.job_p99_s,
        "all done after s": figures.ended_s,
        "hit rate": figures.hit_rate,
        "longest wait s": figures.wait_max_s,
    }


def tenants(result: Result) -> Figures:
    parts = [of_part(result, part) for part in range(4)]
    served = [
        sum(turn.prompt_tokens - turn.cached_tokens + turn.output_tokens for turn in part) / result.figures.ended_s
        for part in parts
    ]
    return {
        "Jain index": jain(served),
        "large, tokens/s": served[0],
        "others, tokens/s each": statistics.mean(served[1:]),
        "longest wait s": result.figures.wait_max_s,
    }


def deadlines(result: Result) -> Figures:
    people, agents = (seconds(of_part(result, part)) for part in range(2))
    return {
        "people: mean answer s": statistics.mean(people),
        "within 30 s": sum(each <= 30 for each in people) / len(people),
        "agents: mean answer s": statistics.mean(agents),
        "longest wait s": result.figures.wait_max_s,
    }


def output(turns: Sequence[TurnDone], result: Result) -> float:
    """Return generated tokens a second."""
    return sum(turn.output_tokens for turn in turns) / result.figures.ended_s


def lanes(result: Result) -> Figures:
    hot, batch = of_part(result, 0), of_part(result, 1)
    return {
        "interactive answers": len(hot),
        "p99 answer s": p99(seconds(hot)),
        "interactive tokens/s": output(hot, result),
        "batch tokens/s": output(batch, result),
    }


def surge(result: Result) -> Figures:
    hot, batch = of_part(result, 0), of_part(result, 1)
    meanwhile = [turn for turn in hot if int(turn.asked_at) in SURGE_S]
    return {
        "interactive answers": len(hot),
        "p99 first token s": p99(sorted(turn.first_token_at - turn.asked_at for turn in meanwhile)),
        "p99 answer s": p99(seconds(meanwhile)),
        "batch tokens/s": output(batch, result),
        "batch turns refused": result.troubles.get("batch_paused", 0),
    }


READS: dict[str, Read] = {
    "jobs": jobs,
    "steady": jobs,
    "groups": jobs,
    "tenants": tenants,
    "deadlines": deadlines,
    "lanes": lanes,
    "rush": lanes,
    "surge": surge,
}
FIRST_SEED = 11
"""Those before were looked at while the orders were made: nothing was chosen by what is shown here."""

WHOLE = "tokens/s of all"
"""A figure of every run, and a column of no table."""

TIMES = {"lanes": 2, "rush": 2, "jobs": 4}
"""So many times as many seeds for scenarios that are judged by few answers: one in a hundred, or the last ones."""


@dataclass(frozen=True)
class Row:
    label: str
    scenario: str
    order: str
    only: int | None = None
    """The only part of its agents that plays."""
    gate: Mapping[str, float] = field(default_factory=dict)


class Runs:
    """Plays rows under one law, each once; figures are means over the seeds. ``kept``: a file of what was played."""

    def __init__(self, law: str, seeds: int, kept: Path | None = None) -> None:
        self.law = law
        self.seeds = seeds
        self._kept = kept
        self._done: dict[str, Figures] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}

    def of(self, row: Row) -> Figures:
        runs = self.each(row)
        return {name: statistics.mean(run[name] for run in runs) for name in runs[0]}

    def each(self, row: Row) -> list[Figures]:
        """Return the figures for each seed."""
        seeds = self.seeds * TIMES.get(row.scenario, 1)
        return [self.run(row, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]

    def against(self, row: Row, other: Row, figure: str) -> list[float]:
        """Return one row's figure over the other's, seed by seed."""
        return [one[figure] / two[figure] for one, two in zip(self.each(row), self.each(other), strict=True)]

    def run(self, row: Row, seed: int) -> Figures:
        """Return the figures of one run."""
        gate = {"order": row.order, **row.gate}
        key = f"{self.law} {row.scenario} {row.only} {sorted(gate.items())} {seed}"
        if key not in self._done:
            result = run_scenario(load(row.scenario, only=row.only), law=self.law, seed=seed, gate=gate)
            self._done[key] = {**READS[row.scenario](result), WHOLE: output(result.turns, result)}
            if self._kept is not None:
                self._kept.write_text(json.dumps(self._done))
        return self._done[key]


SCENARIOS = ("jobs", "steady", "tenants", "deadlines", "lanes", "surge", "groups")
FIFO = {name: Row("fifo", name, "fifo") for name in SCENARIOS}
CACHE_AWARE = Row("cache_aware", "jobs", "cache_aware")
CACHE_AWARE_STEADY = Row("cache_aware", "steady", "cache_aware")
FAIR = Row("fair", "tenants", "fair")
HOT_ALONE = Row("interactive alone, fifo", "lanes", "fifo", only=0)
HOT_RUSH = Row("as many interactive agents as it can serve", "rush", "fifo")
COLD_ALONE = Row("batch alone", "lanes", "fifo", only=1)
LANES = Row("lanes", "lanes", "lanes")

TABLES: tuple[list[Row], ...] = (
    [FIFO["jobs"], Row("smallest", "jobs", "smallest"), CACHE_AWARE],
    [FIFO["steady"], CACHE_AWARE_STEADY],
    [FIFO["tenants"], FAIR],
    [FIFO["deadlines"], Row("deadline", "deadlines", "deadline")],
    [HOT_ALONE, FIFO["lanes"], LANES, Row("lanes, hot_share 0.5", "lanes", "lanes", gate={"hot_share": 0.5})],
    [
        Row("interactive alone, fifo", "surge", "fifo", only=0),
        FIFO["surge"],
        Row("lanes", "surge", "lanes"),
        Row("lanes, hot_objective_s 1", "surge", "lanes", gate={"hot_objective_s": 1.0}),
    ],
    [FIFO["groups"], Row("lanes, hot_share 0", "groups", "lanes", gate={"hot_share": 0.0})],
)


def table(rows: Sequence[Row], runs: Runs) -> Iterator[str]:
    for number, row in enumerate(rows):
        figures = {name: value for name, value in runs.of(row).items() if name != WHOLE}
        if not number:
            yield f"| order | {' | '.join(figures)} |"
            yield "|---" * (len(figures) + 1) + "|"
        yield f"| {row.label} | {' | '.join(_short(value) for value in figures.values())} |"


def _short(value: float) -> str:
    if math.isnan(value):  # nobody was answered
        return "none"
    return f"{value:.3f}" if value < 1.5 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def left_for_batch(runs: Runs) -> float:
    """Return the tokens a second that batch work could have beside the interactive agents: of what the engine does for
    batch work alone, the share that they leave of what it does for interactive agents alone.
    """
    used = runs.of(HOT_ALONE)[WHOLE] / runs.of(HOT_RUSH)[WHOLE]
    return runs.of(COLD_ALONE)[WHOLE] * (1.0 - used)


def promises(runs: Runs) -> Iterator[str]:
    """Yield what the orders are held to, and what they do."""
    fifo, cache_aware = runs.of(FIFO["jobs"]), runs.of(CACHE_AWARE)
    alone, both = runs.of(HOT_ALONE), runs.of(LANES)
    rows = [
        ("`cache_aware`: mean job time against `fifo`", "at most 0.90", _ratio(cache_aware, fifo, "mean job s")),
        ("tokens/s against `fifo`", "about 1", statistics.mean(runs.against(CACHE_AWARE, FIFO["jobs"], WHOLE))),
        ("longest wait against `fifo`", "at most 3", _ratio(cache_aware, fifo, "longest wait s")),
        (
            "`lanes`: p99 of interactive answers against without batch work",
            "at most 1.2",
            _ratio(both, alone, "p99 answer s"),
        ),
        (
            "batch tokens/s, of what interactive agents leave",
            "at least 0.70",
            both["batch tokens/s"] / left_for_batch(runs),
        ),
        ("`fair`: Jain index", "at least 0.95", runs.of(FAIR)["Jain index"]),
    ]
    yield "| what | wanted | measured |"
    yield "|---|---|---|"
    for what, wanted, measured in rows:
        yield f"| {what} | {wanted} | {measured:.3f} |"


def throughput(runs: Runs) -> Iterator[str]:
    """Yield what ``cache_aware`` does in the same time as ``fifo``, seed by seed."""
    yield "`cache_aware`, tokens/s until all is done against `fifo`, of the same seed:\n"
    yield "| scenario | mean | standard deviation | seed by seed, smallest first |"
    yield "|---|---|---|---|"
    for row in (CACHE_AWARE, CACHE_AWARE_STEADY):
        each = runs.against(row, FIFO[row.scenario], WHOLE)
        spread = f"{statistics.stdev(each):.3f}" if len(each) > 1 else "none"
        told = ", ".join(f"{ratio:.2f}" for ratio in sorted(each))
        yield f"| `{row.scenario}.yaml` | {statistics.mean(each):.3f} | {spread} | {told} |"


def _ratio(one: Figures, other: Figures, name: str) -> float:
    return one[name] / other[name]


def page(runs: Runs) -> Iterator[str]:
    for rows in TABLES:
        yield f"`bench/queues/{rows[-1].scenario}.yaml`: {load(rows[-1].scenario).about}\n"
        yield from table(rows, runs)
        yield ""
    yield from promises(runs)
    yield ""
    yield from throughput(runs)
    cold, rush = runs.of(COLD_ALONE)[WHOLE], runs.of(HOT_RUSH)[WHOLE]
    yield (
        f"\nThat engine does {cold:.0f} tokens/s of batch work alone, and {rush:.0f} for as many interactive agents as "
        f"it can serve (`rush.yaml`); those of `lanes.yaml` leave {left_for_batch(runs):.0f} tokens/s to batch work.\n"
    )
    yield (
        f"Law `{runs.law}`, means of {runs.seeds} seeds, of {2 * runs.seeds} for `lanes.yaml` and {4 * runs.seeds} for "
        f"`jobs.yaml`. `python bench/queues.py --seeds {runs.seeds} --write "
        "docs/queues.md`\n"
    )


def standard(law: str, seeds: int) -> Iterator[str]:
    """Yield a table of scenarios that were made for control laws: each order against ``fifo``, of the same seed."""
    yield "| scenario | order | mean job | all done | longest wait |"
    yield "|---|---|---|---|---|"
    for name in STANDARD:
        played = {
            order: [jobs(run_scenario(name, law=law, seed=seed, gate={"order": order})) for seed in range(1, seeds + 1)]
            for order in ("fifo", "smallest", "cache_aware")
        }
        base = played.pop("fifo")
        for order, runs in played.items():
            ratios = [
                statistics.geometric_mean(run[figure] / fifo[figure] for run, fifo in zip(runs, base, strict=True))
                for figure in ("mean job s", "all done after s", "longest wait s")
            ]
            yield f"| `{name}` | {order} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |"
    yield ""
    command = f"python bench/queues.py --standard --law {law} --seeds {seeds} --write docs/queues.md"
    yield f"Law `{law}`, geometric means of {seeds} seeds; `{command}`.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--law", default="meanfield", help="control law (default: the proxy's own, %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row (default: %(default)s)")
    parser.add_argument("--kept", type=Path, help="a file that runs are kept in as they are done")
    parser.add_argument("--standard", action="store_true", help="the simulator's own scenarios instead")
    parser.add_argument("--write", type=Path, help="the document whose tables to replace")
    options = parser.parse_args()
    runs = (
        standard(options.law, options.seeds)
        if options.standard
        else page(Runs(options.law, options.seeds, options.kept))
    )
    lines = []
    for line in runs:
        lines.append(line)
        print(line, flush=True)
    if options.write is not None:
        document.write(options.write, BLOCK + (" --standard" if options.standard else ""), "\n".join(lines))


if __name__ == "__main__":
    main()

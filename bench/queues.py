#!/usr/bin/env python3
"""What each order of held turns is for, in simulated time: writes the tables of docs/queues.md.

    python bench/queues.py                       # prints them; about ten minutes on one core
    python bench/queues.py --write docs/queues.md
    python bench/queues.py --standard --write docs/queues.md   # the simulator's own scenarios, against fifo
    python bench/queues.py --law meanfield --seeds 1

The scenarios are in ``bench/queues/``. The real gate and the real law run over the engine model of ``concur-proxy
engine``; the same seed gives the same numbers.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from concur_proxy.sim.agents import TurnDone
from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_scenario

HERE = Path(__file__).parent / "queues"
START, END = "<!-- measured: bench/queues.py{} -->\n", "<!-- end -->\n"
STANDARD = ("think-1s", "think-5s", "think-30s", "recorded-2m", "recorded-4m")

Figures = dict[str, float]


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


def lanes(result: Result) -> Figures:
    hot, batch = of_part(result, 0), of_part(result, 1)
    end = result.figures.ended_s
    return {
        "interactive answers": len(hot),
        "p99 answer s": p99(seconds(hot)),
        "interactive tokens/s": sum(turn.output_tokens for turn in hot) / end,
        "batch tokens/s": sum(turn.output_tokens for turn in batch) / end,
    }


Row = tuple[str, Scenario, dict[str, Any]]
Table = tuple[str, Callable[[Result], Figures], list[Row]]


def tables() -> Iterator[Table]:
    """Yield heading, figures and rows: label, scenario, settings of the gate."""

    def orders(name: str, *others: str) -> list[Row]:
        return [(order, load(name), {"order": order}) for order in ("fifo", *others)]

    yield "jobs", jobs, orders("jobs", "smallest", "cache_aware")
    yield "tenants", tenants, orders("tenants", "fair")
    yield "deadlines", deadlines, orders("deadlines", "deadline")
    alone = [("interactive alone, fifo", load("lanes", only=0), {"order": "fifo"})]
    both = [
        *orders("lanes", "lanes"),
        ("lanes, hot_share 0.5", load("lanes"), {"order": "lanes", "hot_share": 0.5}),
    ]
    yield "lanes", lanes, alone + both


def batch_alone(result: Result) -> float:
    return sum(turn.output_tokens for turn in result.turns) / result.figures.ended_s


def measured(rows: list[Row], figures: Callable[[Result], Figures], law: str, seeds: int) -> Iterator[str]:
    """Yield the lines of a table: means over the seeds."""
    names: list[str] = []
    for label, scenario, gate in rows:
        runs = [figures(run_scenario(scenario, law=law, seed=seed, gate=gate)) for seed in range(1, seeds + 1)]
        if not names:
            names = list(runs[0])
            yield f"| order | {' | '.join(names)} |"
            yield "|---" * (len(names) + 1) + "|"
        yield f"| {label} | {' | '.join(_short(statistics.mean(run[name] for run in runs)) for name in names)} |"


def _short(value: float) -> str:
    if math.isnan(value):  # nobody was answered
        return "none"
    return f"{value:.3f}" if value < 1.5 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def page(law: str, seeds: int) -> Iterator[str]:
    for name, figures, rows in tables():
        yield f"`bench/queues/{name}.yaml`: {rows[-1][1].about}\n"
        yield from measured(rows, figures, law, seeds)
        yield ""
    only = [run_scenario(load("lanes", only=1), law=law, seed=seed) for seed in range(1, seeds + 1)]
    yield f"Batch alone on that engine: {statistics.mean(map(batch_alone, only)):.0f} tokens/s.\n"
    yield f"Law `{law}`, means of {seeds} seeds; `python bench/queues.py --write docs/queues.md`.\n"


def standard(law: str, seeds: int) -> Iterator[str]:
    """Yield a table of scenarios that were made for control laws: each order against ``fifo``, of the same seed."""
    yield "| scenario | order | mean job | all done | longest wait |"
    yield "|---|---|---|---|---|"
    for name in STANDARD:
        base = [jobs(run_scenario(name, law=law, seed=seed)) for seed in range(1, seeds + 1)]
        for order in ("smallest", "cache_aware"):
            runs = [jobs(run_scenario(name, law=law, seed=seed, gate={"order": order})) for seed in range(1, seeds + 1)]
            ratios = [
                statistics.geometric_mean(run[figure] / fifo[figure] for run, fifo in zip(runs, base, strict=True))
                for figure in ("mean job s", "all done after s", "longest wait s")
            ]
            yield f"| `{name}` | {order} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |"
    yield ""
    yield f"Law `{law}`, {seeds} seeds, geometric means; `python bench/queues.py --standard --write docs/queues.md`.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--law", default="footprint", help="control law (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row (default: %(default)s)")
    parser.add_argument("--standard", action="store_true", help="the simulator's own scenarios instead")
    parser.add_argument("--write", type=Path, help="the document whose tables to replace")
    options = parser.parse_args()
    lines = []
    for line in (standard if options.standard else page)(options.law, options.seeds):
        lines.append(line)
        print(line, flush=True)
    if options.write is not None:
        start = START.format(" --standard" if options.standard else "")
        before, _, rest = options.write.read_text().partition(start)
        options.write.write_text(f"{before}{start}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()

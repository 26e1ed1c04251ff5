"""The same agents by several ways, in turns: straight to the engine, through the proxy, through something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from concur_proxy import pictures
from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.families import Family
from concur_proxy.bench.pairs import Ratio, ratio
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.plots import History, draw
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.report import Progress, Report
from concur_proxy.bench.tables import agents_table, comparison_table, progress_text
from concur_proxy.errors import ConfigError
from concur_proxy.sim.workload import SessionScript


@dataclass(frozen=True, slots=True)
class Target:
    """One way to an engine: by a URL, or through a proxy of our own that lives for each run anew.

    A proxy that also stands there during the other runs would start its own with a window that their load has cut.
    """

    label: str
    url: str | None
    engine_url: str | None = None
    """The engine itself, for its counters and to empty its cache before each run; None: neither."""
    proxy_flags: tuple[str, ...] = ()
    """Flags of ``concur-proxy serve`` for the proxy of our own."""

    @classmethod
    def parse(cls, text: str, *, engine_url: str | None = None) -> Target:
        """Read ``LABEL=URL``, or a URL that is its own label."""
        label, equals, url = text.partition("=")
        return cls(label, url, engine_url) if equals and "://" not in label else cls(text, text, engine_url)

    @classmethod
    def own_proxy(cls, label: str, engine_url: str, *flags: str) -> Target:
        return cls(label, None, engine_url, flags)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    targets: tuple[Target, ...]
    """The first is what the others are compared with."""
    rounds: int = 3
    """Runs by each way. The order changes from round to round, so that no way always comes first."""
    reset_cache: bool = True
    play: PlayOptions = field(default_factory=PlayOptions)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All reports by label, in the order of the rounds."""

    reports: Mapping[str, tuple[Report, ...]]

    @property
    def baseline(self) -> str:
        return next(iter(self.reports))

    @property
    def ratios(self) -> dict[str, Ratio | None]:
        """Useful tokens per second of the others, compared with the baseline's."""
        rates = {label: [run.useful_tokens_per_s for run in runs] for label, runs in self.reports.items()}
        return {label: ratio(rates[label], rates[self.baseline]) for label in rates if label != self.baseline}

    def as_json(self) -> dict[str, object]:
        return {
            "baseline": self.baseline,
            "runs": {label: [run.as_json() for run in runs] for label, runs in self.reports.items()},
            "ratios": {label: asdict(found) if found else None for label, found in self.ratios.items()},
        }


async def compare(
    scripts: Sequence[SessionScript | Family],
    options: CompareOptions,
    *,
    on_progress: Callable[[Target, int, Progress], None] | None = None,
) -> Comparison:
    """Play every round. ConfigError where labels are missing or alike; BackendError where an engine does not answer."""
    labels = [target.label for target in options.targets]
    if not labels or len(set(labels)) < len(labels):
        raise ConfigError(f"targets: {', '.join(labels) or 'none'}: at least one is needed, with different labels")
    reports: dict[str, list[Report]] = {label: [] for label in labels}
    for index in range(options.rounds):
        for target in options.targets if index % 2 == 0 else reversed(options.targets):

            def tell(progress: Progress, target: Target = target, index: int = index) -> None:
                if on_progress is not None:
                    on_progress(target, index, progress)

            reports[target.label].append(await run_once(scripts, target, options, tell))
    return Comparison({label: tuple(runs) for label, runs in reports.items()})


async def run_once(
    scripts: Sequence[SessionScript | Family],
    target: Target,
    options: CompareOptions,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Play the workload by one way, with the engine's own counters read around it."""
    async with AsyncExitStack() as stack:
        stats = None
        if target.engine_url is not None:
            stats = EngineStats(target.engine_url)
            stack.push_async_callback(stats.aclose)
            if options.reset_cache:
                await stats.reset_cache()
            await stats.begin()
        url = target.url or stack.enter_context(_own_proxy(target)).url
        report = await play(url, scripts, options.play, on_progress=on_progress)
        return report if stats is None else report.with_engine(await stats.end())


def _own_proxy(target: Target) -> ProxyProcess:
    return ProxyProcess([str(target.engine_url)], flags=(*QUIET, *target.proxy_flags))


def run_compare(
    scripts: Sequence[SessionScript | Family],
    options: CompareOptions,
    console: Console,
    *,
    json_file: Path | None = None,
    plot: Path | None = None,
) -> Comparison:
    """Play, with a line of progress, and print the tables; ``json_file`` gets every figure, ``plot`` a picture."""
    if plot is not None:
        pictures.check(plot, option="--plot")
    history = History()
    with console.status("starting") as status:

        def show(target: Target, index: int, progress: Progress) -> None:
            history.add(target.label, index, progress)
            status.update(f"round {index + 1} of {options.rounds}, {target.label}: {progress_text(progress)}")

        comparison = asyncio.run(compare(scripts, options, on_progress=show))
    console.print(comparison_table(comparison.reports, comparison.ratios))
    console.print(agents_table(comparison.reports))
    if plot is not None:
        draw(plot, history, comparison.reports)
    if json_file is not None:
        json_file.write_text(json.dumps(comparison.as_json(), indent=1) + "\n")
    return comparison

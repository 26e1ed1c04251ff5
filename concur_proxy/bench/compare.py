"""The same agents by several ways, in turns: straight to the engine, through the proxy, through something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field

from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.families import Family
from concur_proxy.bench.pairs import Ratio, ratio
from concur_proxy.bench.player import PlayOptions, Stop, play
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.report import Progress, Report
from concur_proxy.errors import BackendError, ConfigError
from concur_proxy.sim.workload import SessionScript

COMPARED: Mapping[str, Callable[[Report], float | None]] = {
    "useful tokens/s": lambda run: run.useful_tokens_per_s,
    "output tokens/s": lambda run: run.output_tokens_per_s,
    "turns/s": lambda run: run.turns_per_s,
    "good turns/s": lambda run: run.goodput_per_s,
    "first token p95": lambda run: run.ttft_p95_s,
    "turn p95": lambda run: run.turn_p95_s,
    "job mean": lambda run: None if run.jobs is None else run.jobs.mean_s,
}
"""Of which ratios are told."""


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
        """Read ``LABEL=URL``, or a URL that is its own label. A client's base URL, with /v1, will do."""
        label, equals, url = text.partition("=")
        named = equals and "://" not in label
        return cls(label if named else text, base_url(url if named else text), engine_url and base_url(engine_url))

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
    failure: str | None = None
    """What ended it before all rounds were played."""

    @property
    def baseline(self) -> str:
        return next(iter(self.reports))

    @property
    def ratios(self) -> dict[str, Ratio | None]:
        """Useful tokens per second of the others, compared with the baseline's."""
        return {label: figures["useful tokens/s"] for label, figures in self.all_ratios.items()}

    @property
    def all_ratios(self) -> dict[str, dict[str, Ratio | None]]:
        """Every figure of ``COMPARED``, of each way but the baseline. Rounds that not all have played do not count."""
        pairs = min(map(len, self.reports.values()))
        base = self.reports[self.baseline][:pairs]
        return {
            label: {name: _ratio(runs[:pairs], base, figure) for name, figure in COMPARED.items()}
            for label, runs in self.reports.items()
            if label != self.baseline
        }

    def as_json(self) -> dict[str, object]:
        return {
            "baseline": self.baseline,
            "runs": {label: [run.as_json() for run in runs] for label, runs in self.reports.items()},
            "ratios": {
                label: {name: asdict(found) for name, found in figures.items() if found}
                for label, figures in self.all_ratios.items()
            },
            "failure": self.failure,
        }


async def compare(
    scripts: Sequence[SessionScript | Family],
    options: CompareOptions,
    *,
    on_progress: Callable[[Target, int, Progress], None] | None = None,
    stop: Stop | None = None,
) -> Comparison:
    """Play every round, until ``stop`` is asked to end.

    ConfigError where labels are missing or alike; BackendError where an engine does not answer before there is a
    report: later that is the comparison's failure.
    """
    labels = checked_labels(options.targets)
    reports: dict[str, list[Report]] = {label: [] for label in labels}
    for index in range(options.rounds):
        for target in options.targets if index % 2 == 0 else reversed(options.targets):

            def tell(progress: Progress, target: Target = target, index: int = index) -> None:
                if on_progress is not None:
                    on_progress(target, index, progress)

            try:
                reports[target.label].append(await run_once(scripts, target, options, tell, stop))
            except BackendError as error:
                if not any(reports.values()):
                    raise
                return _comparison(reports, error.message)
            if stop is not None and stop.reason:
                return _comparison(reports, stop.reason)
    return _comparison(reports, None)


def checked_labels(targets: Sequence[Target]) -> list[str]:
    """ConfigError where labels are missing or alike."""
    labels = [target.label for target in targets]
    if not labels or len(set(labels)) < len(labels):
        raise ConfigError(f"targets: {', '.join(labels) or 'none'}: at least one is needed, with different labels")
    return labels


def base_url(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def _comparison(reports: Mapping[str, Sequence[Report]], failure: str | None) -> Comparison:
    return Comparison({label: tuple(runs) for label, runs in reports.items()}, failure)


def _ratio(runs: Sequence[Report], base: Sequence[Report], figure: Callable[[Report], float | None]) -> Ratio | None:
    if any(run.ended_early for run in (*runs, *base)):
        return None
    values, others = ([found for run in each if (found := figure(run)) is not None] for each in (runs, base))
    return ratio(values, others)


async def run_once(
    scripts: Sequence[SessionScript | Family],
    target: Target,
    options: CompareOptions,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Stop | None = None,
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
        report = await play(url, scripts, options.play, on_progress=on_progress, stop=stop)
        if stats is None or options.play.warm_up_s:  # the engine's counters have the warm-up in them
            return report
        return report.with_engine(await stats.end())


def _own_proxy(target: Target) -> ProxyProcess:
    return ProxyProcess([str(target.engine_url)], flags=(*QUIET, *target.proxy_flags))

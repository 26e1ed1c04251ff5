"""``concur-proxy bench``: asks the engine what its words are, plays, and prints and writes what came out."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from concur_proxy import __version__, pictures
from concur_proxy.bench.client import Client
from concur_proxy.bench.compare import CompareOptions, Comparison, Target, checked_labels, compare
from concur_proxy.bench.families import Family
from concur_proxy.bench.player import Stop, first_model
from concur_proxy.bench.plots import History, draw
from concur_proxy.bench.report import Progress
from concur_proxy.bench.tables import comparison_table, progress_text, ratio_table, troubles
from concur_proxy.bench.vocabulary import Vocabulary, learn
from concur_proxy.errors import ConfigError

INTERRUPTED = "interrupted"
INTERRUPTED_STATUS = 130
LINE_INTERVAL_S = 10.0
"""Where nobody watches a terminal, progress is a line from time to time."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    compare: CompareOptions
    vocabulary: Vocabulary | None = None
    """None: ask the engine."""
    json_file: Path | None = None
    plot: Path | None = None
    asked: Sequence[str] = ()
    """The words of the command line, for the JSON."""


def run_bench(agents: Sequence[Family], options: BenchOptions, console: Console) -> int:
    """Play and tell; return the exit status. What was played counts also where it is interrupted or the engine dies."""
    if options.plot is not None:
        pictures.check(options.plot, option="--plot")
    if options.json_file is not None and not options.json_file.absolute().parent.is_dir():
        raise ConfigError(f"--json {options.json_file}: there is no folder {options.json_file.parent}")
    checked_labels(options.compare.targets)
    history = History()
    comparison, told = asyncio.run(_play(agents, options, console, history))
    _print(comparison, console)
    if options.plot is not None:
        draw(options.plot, history, comparison.reports)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps({**told, **comparison.as_json()}, indent=1) + "\n")
    return _status(comparison)


async def _play(
    agents: Sequence[Family], options: BenchOptions, console: Console, history: History
) -> tuple[Comparison, dict[str, Any]]:
    stop = Stop()
    with _interruptible(stop), console.status("starting") as status:
        settings = await _with_model_and_words(options, console)
        line = _Lines(console)

        def show(target: Target, index: int, progress: Progress) -> None:
            history.add(target.label, index, progress)
            text = f"round {index + 1} of {settings.rounds}, {target.label}: {progress_text(progress)}"
            status.update(text)
            line.show(text)

        comparison = await compare(agents, settings, on_progress=show, stop=stop)
    return comparison, _facts(agents, options, settings)


async def _with_model_and_words(options: BenchOptions, console: Console) -> CompareOptions:
    """Fill in what the engine itself tells. BackendError where it does not answer."""
    settings = options.compare
    target = settings.targets[0]
    url = target.url or target.engine_url
    assert url is not None
    client = Client(url)
    try:
        model = settings.play.model or await first_model(client, settings.play)
    finally:
        await client.aclose()
    vocabulary = options.vocabulary or await learn(url, settings.play, model)
    console.print(_words_text(vocabulary), style="dim", highlight=False)
    play = replace(settings.play, model=model, words=vocabulary.words, tokens_per_word=vocabulary.tokens_per_word)
    return replace(settings, play=play)


def _words_text(vocabulary: Vocabulary) -> str:
    size = f"{vocabulary.tokens_per_word:.2f} tokens a word" if vocabulary.tokens_per_word != 1 else "one token a word"
    return f"texts of {len(vocabulary.words)} words, {size} by {vocabulary.told_by}"


def _facts(agents: Sequence[Family], options: BenchOptions, settings: CompareOptions) -> dict[str, Any]:
    sessions = [script for whole in agents for script in whole.members()]
    return {
        "version": __version__,
        "asked": _without_keys(options.asked),
        "model": settings.play.model,
        "tokens_per_word": settings.play.tokens_per_word,
        "agents": len(agents),
        "sub_agents": len(sessions) - len(agents),
        "turns": sum(len(script.turns) for script in sessions),
        "targets": {target.label: target.url for target in settings.targets},
    }


def _without_keys(words: Sequence[str]) -> list[str]:
    """Return the words of the command line, but no API key."""
    hidden = ["..." if before == "--api-key" else word for before, word in zip(["", *words], words, strict=False)]
    return ["--api-key=..." if word.startswith("--api-key=") else word for word in hidden]


class _Lines:
    """Progress for logs: a line every ``LINE_INTERVAL_S``, where there is no terminal that shows it live."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at = time.monotonic() + LINE_INTERVAL_S

    def show(self, text: str) -> None:
        if not self._console.is_terminal and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LINE_INTERVAL_S
            self._console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def _interruptible(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C ends the run in good order, a second one everything."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop(INTERRUPTED)

    with suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread, or not on this system
        loop.add_signal_handler(signal.SIGINT, first)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)


def _print(comparison: Comparison, console: Console) -> None:
    console.print(comparison_table(comparison.reports))
    ratios = comparison.all_ratios
    if any(found for figures in ratios.values() for found in figures.values()):
        console.print(ratio_table(ratios, comparison.baseline))
    for sentence in troubles(comparison.reports):
        console.print(sentence, style="red", highlight=False, soft_wrap=True)
    if comparison.failure:
        console.print(f"not all rounds were played: {comparison.failure}", style="red", highlight=False, soft_wrap=True)


def _status(comparison: Comparison) -> int:
    if comparison.failure == INTERRUPTED:
        return INTERRUPTED_STATUS
    failed = any(report.errors for runs in comparison.reports.values() for report in runs)
    return 1 if failed or comparison.failure else 0

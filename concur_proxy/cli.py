"""What a person types. Commands parse and call; what they need is imported when they run, so that help is instant."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concur_proxy import __version__, build
from concur_proxy.errors import ConcurError, ConfigError

if TYPE_CHECKING:
    from concur_proxy.config import Settings
    from concur_proxy.runtime import VllmOptions

app = typer.Typer(
    name="concur-proxy",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: concur-proxy demo. Every setting: config.example.yaml.",
)

AdminToken = Annotated[
    str | None,
    typer.Option(envvar="CONCUR_SERVER__ADMIN_TOKEN", help="Admin token, where one is set.", show_default=False),
]

USAGE = 2
"""Exit status where the command line or the configuration is wrong."""


def main() -> None:
    """Run the command line; problems come as plain words on stderr."""
    try:
        app()
    except ConfigError as error:
        _fail(error.message, status=USAGE)
    except ConcurError as error:
        _fail(error.message, status=1)


def _fail(message: str, *, status: int) -> None:
    print(f"concur-proxy: {message}", file=sys.stderr)
    sys.exit(status)


def _version(value: bool) -> None:
    if value:
        print(f"concur-proxy {__version__} ({build()})")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Bounds how many LLM agents are active on an engine at once, so that their contexts stay in its KV cache."""


@app.command()
def serve(
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An engine's base URL. Repeat it for several interchangeable engines."),
    ] = None,
    config: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="YAML file with settings. Else CONCUR_CONFIG names it.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 for all. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one. Default: 8080.")] = None,
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Control law: unlimited, fixed, aimd, eviction, pid, footprint, gradient or meanfield (default).",
        ),
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Active sessions per engine, constant: the law `fixed` with this window.")
    ] = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Decide and report, but hold nothing: what would it do?")
    ] = False,
    vllm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Start vLLM with this model and proxy it; engine flags after --."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Redis or Valkey that several replicas share their state through."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Processes that serve together on this host; they need --state.")
    ] = 1,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. Default: info.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json. Default: text.")] = None,
    engine_flags: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ENGINE FLAGS]", help="Flags for vLLM, with --vllm.", show_default=False),
    ] = None,
) -> None:
    """Run the proxy in front of one or more engines.

    concur-proxy serve --backend http://localhost:8000

    concur-proxy serve --vllm Qwen/Qwen3-32B -- --tensor-parallel-size 2
    """
    from concur_proxy.config.load import load

    if window is not None and law not in {None, "fixed"}:
        raise ConfigError(f"--window belongs to the law fixed; --law {law} moves its window by itself")
    flags: dict[str, Any] = {
        "backends": backend or None,
        "server.host": host,
        "server.port": port,
        "control.law": "fixed" if window is not None else law,
        "control.fixed.window": window,
        "gate.mode": "observe" if observe else None,
        "state.url": state,
        "log.level": log_level,
        "log.format": log_format,
    }
    settings = load(_one_file(config or []), flags={path: value for path, value in flags.items() if value is not None})
    options = _vllm_options(vllm, engine_flags or [])
    if not settings.backends and not settings.fleet.finds_backends and options is None:
        raise ConfigError(NO_ENGINE)
    if workers > 1:
        _may_have_workers(settings, options)
    from concur_proxy.runtime import serve as run

    sys.exit(run(settings, vllm=options, workers=workers, announce=functools.partial(print, flush=True)))


def _one_file(named: list[Path]) -> Path | None:
    if len(named) > 1:
        raise ConfigError("--config is given twice: all settings that are not flags or variables stand in one file")
    from_environment = os.environ.get("CONCUR_CONFIG")
    return named[0] if named else Path(from_environment) if from_environment else None


def _may_have_workers(settings: Settings, vllm: VllmOptions | None) -> None:
    """Several processes that knew nothing of each other would each let a whole window of sessions in."""
    if settings.state.url is None:
        raise ConfigError(
            "--workers needs a Redis or Valkey through which the workers share sessions and windows: "
            "add --state redis://localhost:6379. One process is enough for most."
        )
    if vllm is not None:
        raise ConfigError("--workers does not go with --vllm: start the engine by itself, and name it with --backend")


NO_ENGINE = """\
there is no engine to proxy. Name one, let the proxy start one, or try it without:

  concur-proxy serve --backend http://localhost:8000
  concur-proxy serve --vllm Qwen/Qwen3-32B
  concur-proxy demo"""


def _vllm_options(model: str | None, flags: list[str]) -> VllmOptions | None:
    if model is None and flags:
        raise ConfigError(f"unexpected argument {flags[0]}; {_hint(flags[0])}")
    if model is None:
        return None
    if not model:
        raise ConfigError("--vllm names no model; give one, such as --vllm Qwen/Qwen3-32B")
    from concur_proxy.runtime import VllmOptions

    return VllmOptions(model=model, flags=tuple(flags))


def _hint(argument: str) -> str:
    if "://" in argument:
        return f"did you mean --backend {argument}?"
    host, _, port = argument.partition(":")
    if host and port.isdecimal():
        return f"did you mean --backend http://{argument}?"
    return "engine flags go with --vllm MODEL"


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with settings.", show_default=False)],
) -> None:
    """Say what is wrong with a configuration, without starting; else what differs from the defaults.

    The environment counts as it does for `serve`. Exit status 2 where something is wrong.

    concur-proxy check config.yaml
    """
    from concur_proxy.config.load import load
    from concur_proxy.config.words import differences

    settings = load(file)
    changed = differences(settings)
    print(f"{file}: good; " + ("differs from the defaults in" if changed else "all settings at their defaults"))
    for path, value in changed:
        print(f"  {path} = {value}")
    if not settings.backends and not settings.fleet.finds_backends:
        print("  there are no backends: serve needs --backend or --vllm")


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: a team, a tenant.", show_default=False)],
    file: Annotated[Path, typer.Option(metavar="FILE", help="File of keys to add it to; made where it is missing.")],
    models: Annotated[
        str | None,
        typer.Option(
            metavar="A,B*", help="Models that it may use; * ends a beginning. Default: all.", show_default=False
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="First day (UTC) on which it is not taken, such as 2027-01-31.", show_default=False
        ),
    ] = None,
) -> None:
    """Make an API key: print it, once, and add its HMAC to a file for the setting auth.keys_file.

    concur-proxy keygen team-a --file keys.yaml
    """
    from concur_proxy.auth.files import add_key

    listed = [model.strip() for model in (models or "").split(",") if model.strip()]
    print(add_key(file, name, models=listed, expires=expires))


@app.command()
def status(
    url: Annotated[str, typer.Argument(metavar="[URL]", help="Where the proxy listens.")] = "http://127.0.0.1:8080",
    token: AdminToken = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on showing it, with the last hour and who waits, until Ctrl-C.")
    ] = False,
) -> None:
    """Show what a running proxy does: windows, active and held sessions, signals.

    concur-proxy status http://localhost:8080 --watch
    """
    from rich.console import Console

    from concur_proxy.admin.client import ProxyClient
    from concur_proxy.admin.view import render
    from concur_proxy.admin.watch import watch as go_on

    client = ProxyClient(url, token)
    if watch:
        go_on(client, Console())
    else:
        Console().print(render(client.status()))


@app.command()
def doctor(
    url: Annotated[str, typer.Argument(metavar="[URL]", help="A proxy, or an engine.")] = "http://127.0.0.1:8080",
    token: AdminToken = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="OPENAI_API_KEY", help="What the engines ask for, if anything.", show_default=False),
    ] = None,
    requests: Annotated[
        bool, typer.Option("--requests/--no-requests", help="Send each engine two tiny requests, to see what it tells.")
    ] = True,
) -> None:
    """Say what is wrong or missing between proxy and engines, with the flag to set. Takes some seconds.

    Exit status 0: nothing, or notes only; 1: something is; 2: nobody answers.

    concur-proxy doctor http://localhost:8080
    """
    from rich.console import Console

    from concur_proxy.doctor import examine
    from concur_proxy.doctor.examination import Permissions
    from concur_proxy.doctor.report import render

    try:
        examination = examine(url, Permissions(token=token, api_key=api_key, sends=requests))
    except ConcurError as error:
        _fail(error.message, status=USAGE)
    Console().print(render(examination))
    raise typer.Exit(0 if examination.healthy else 1)


@app.command()
def plot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Picture to write: .png, .svg or .pdf.")],
    source: Annotated[
        str,
        typer.Option("--from", metavar="URL|FILE", help="A running proxy, or what its /concur/history answered."),
    ] = "http://127.0.0.1:8080",
    backend: Annotated[str | None, typer.Option(help="One backend. Default: all together.")] = None,
    span: Annotated[str, typer.Option(help="How far back: 30m, 6h or 24h at most.")] = "24h",
    token: AdminToken = None,
) -> None:
    """Draw a running proxy's history: window, active sessions, usage, hit rate, tokens. Needs the extra plot.

    concur-proxy plot day.png --from http://localhost:8080
    """
    from concur_proxy import pictures
    from concur_proxy.admin.plot import draw, read_history, read_span

    pictures.check(file)
    draw(file, read_history(source, token=token, backend=backend, span_s=read_span(span)))


@app.command()
def engine(
    profile: Annotated[
        str, typer.Option(help="A named deployment: model, cards, KV cache. See --list-profiles.")
    ] = "laptop",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    kv_tokens: Annotated[
        int | None, typer.Option(help="Size of the KV cache in tokens, instead of the profile's.")
    ] = None,
    speed: Annotated[float, typer.Option(help="How many times faster than the real hardware.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the generated text.")] = 0,
    model: Annotated[str | None, typer.Option(help="Name to serve the model under.", show_default=False)] = None,
    list_profiles: Annotated[bool, typer.Option("--list-profiles", help="List the profiles and exit.")] = False,
) -> None:
    """Run the embedded engine: an OpenAI-compatible server with a faithful model of KV cache, scheduler and step time.

    concur-proxy engine --profile laptop --port 8000
    """
    from concur_proxy.sim.server import EngineOptions, run

    if list_profiles:
        _list_profiles()
        return
    run(EngineOptions(profile=profile, host=host, port=port, kv_tokens=kv_tokens, speed=speed, seed=seed, model=model))


def _list_profiles() -> None:
    from rich.console import Console
    from rich.table import Table

    from concur_proxy.sim.profiles import PROFILES

    table = Table()
    table.add_column("profile", no_wrap=True)
    for name in ("model", "cards", "KV tokens", "about"):
        table.add_column(name, overflow="fold")
    for profile in PROFILES.values():
        cards = f"{profile.cards} x {profile.card.name}"
        table.add_row(profile.name, profile.model.name, cards, f"{profile.kv_tokens:,}", profile.note)
    Console().print(table)


@app.command()
def demo(
    law: Annotated[str, typer.Option(metavar="NAME", help="Control law of the proxied run.")] = "meanfield",
) -> None:
    """See what it does, in less than 90 seconds and without a GPU: recorded agents, with and without the proxy.

    Starts the embedded engine and the proxy on free ports, plays the same agents straight to the engine and through
    the proxy, and compares tokens per second, hit rate, recomputed tokens and time.

    concur-proxy demo
    """
    from rich.console import Console

    from concur_proxy.bench.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(law=_law(law)), Console()))


def _law(name: str) -> str:
    from concur_proxy.config import LawName

    if name not in set(LawName):
        raise ConfigError(f"--law = {name!r}: must be one of {', '.join(LawName)}")
    return name


@app.command()
def bench(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="LABEL=URL, or a URL; the first is the baseline.", show_default=False),
    ],
    compared: Annotated[
        bool, typer.Option("--compare", help="Insist on two targets or more; they are compared anyway.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The engine behind all targets: reads its counters, empties its cache first."),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Play recorded coding agents, made small, instead of synthetic ones.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recorded agents of a file instead, with their sub-agents (JSON lines)."),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agents of a scenario of `concur-proxy simulate`, or of its file."),
    ] = None,
    agents: Annotated[int, typer.Option(min=1, help="How many agents.")] = 48,
    turns: Annotated[int, typer.Option(min=1, help="Turns of each agent; at most so many of recorded ones.")] = 12,
    new_tokens: Annotated[int, typer.Option(min=1, help="Prompt tokens that a turn adds (synthetic agents).")] = 800,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer (synthetic agents).")] = 50,
    think: Annotated[float, typer.Option(min=0, help="Mean seconds of a tool call (synthetic agents).")] = 0.5,
    sub_agents: Annotated[
        int,
        typer.Option(min=0, help="So many sub-agents behind one turn in five, waited for (synthetic agents)."),
    ] = 0,
    prompts: Annotated[
        float, typer.Option(min=0.0001, metavar="FACTOR", help="Size of recorded prompts; 1: as they were.")
    ] = 0.03,
    outputs: Annotated[
        float, typer.Option(min=0.0001, metavar="FACTOR", help="Size of recorded answers; 1: as they were.")
    ] = 0.25,
    times: Annotated[
        float,
        typer.Option(min=0, metavar="FACTOR", help="Length of recorded pauses, then cut to 5 s; 1: as they were."),
    ] = 0.05,
    speed: Annotated[
        float, typer.Option(min=0.001, help="Play a scenario so many times faster, like an engine's --speed.")
    ] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each target, in turns.")] = 3,
    model: Annotated[str | None, typer.Option(help="Model to ask for. Default: the first one listed.")] = None,
    words: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Words of one token each. Default: found out from the engine."),
    ] = None,
    any_length: Annotated[
        bool,
        typer.Option("--any-length", help="Let answers end by themselves; for servers that refuse `ignore_eos`."),
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Stream the answers, and time the first token.")] = False,
    final: Annotated[
        bool, typer.Option("--final", help="The last turn of each agent says so, in x-session-final.")
    ] = False,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="Bearer token to send.", show_default=False)
    ] = None,
    arrivals: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="RATE", help="Agents that start per second, at random. Default: all at once."),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Agents at once: another begins when one ends. Default: all of them.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Impatient clients: give a try up after this. Default: never."),
    ] = None,
    tries: Annotated[
        int, typer.Option(min=1, help="How often a turn is sent before its agent gives up; the OpenAI SDKs do 3.")
    ] = 100,
    objective: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Count turns whose first token, or answer, comes within this."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of agents and texts.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the runs here (.png, .svg, .pdf). Needs the extra plot.")
    ] = None,
) -> None:
    """Play the same agents at several OpenAI-compatible URLs and compare, such as with and without the proxy.

    concur-proxy bench direct=http://localhost:8000 proxied=http://localhost:8080 --engine http://localhost:8000
    """
    from rich.console import Console

    from concur_proxy.bench.command import BenchOptions, run_bench
    from concur_proxy.bench.compare import CompareOptions, Target
    from concur_proxy.bench.conversation import read_words
    from concur_proxy.bench.families import Family, planned_families, read_families
    from concur_proxy.bench.options import PlayOptions
    from concur_proxy.bench.vocabulary import Vocabulary
    from concur_proxy.bench.workloads import LONGEST_PAUSE_S, RecordedAgents, SyntheticAgents

    if compared and len(targets) < 2:
        raise ConfigError("--compare needs two targets or more, such as direct=URL proxied=URL")
    if sum((recorded, traces is not None, scenario is not None)) > 1:
        raise ConfigError("--recorded, --traces and --scenario each name the agents: give one of them")

    def families() -> tuple[Family, ...]:
        if scenario is not None:
            from concur_proxy.sim.plans import make_plans
            from concur_proxy.simulate.files import load_recordings, load_scenario

            return planned_families(make_plans(load_scenario(scenario), load_recordings(None), seed), speed=speed)
        if recorded or traces is not None:
            given = None if traces is None else read_families(traces)
            pause_s = LONGEST_PAUSE_S if times < 1 else float("inf")
            some = RecordedAgents(agents, turns, prompts, outputs, times, longest_think_s=pause_s)
            return some.families(given)
        return SyntheticAgents(
            sessions=agents,
            turns=turns,
            new_tokens=new_tokens,
            output_tokens=output_tokens,
            think_s=think,
            seed=seed,
            sub_agents=sub_agents,
        ).families()

    options = BenchOptions(
        CompareOptions(
            targets=tuple(Target.parse(target, engine_url=engine) for target in targets),
            rounds=rounds,
            play=PlayOptions(
                model=model,
                stream=stream,
                api_key=api_key,
                seed=seed,
                ignore_eos=not any_length,
                says_goodbye=final,
                arrivals_per_s=arrivals,
                concurrency=at_once,
                timeout_s=timeout,
                max_tries=tries,
                gone_after_s=30.0,
                objective_s=objective,
            ),
        ),
        vocabulary=None if words is None else Vocabulary(read_words(words), told_by=f"{words}"),
        json_file=json_file,
        plot=plot,
        asked=sys.argv[1:],
    )
    raise typer.Exit(run_bench(families(), options, Console()))


@app.command()
def simulate(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCENARIO...", help="Names (see --list) or YAML files.", show_default=False),
    ] = None,
    laws: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Laws to compare: names, fixed:20, requests:8 (a cap on requests in flight); /eager, /lazy or the "
            "name of an order behind one. Default: unlimited and the law that serve uses.",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="fixed", help="Try all fixed windows, too, and compare with the best.")
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; the table has their means.")] = 1,
    pause: Annotated[str | None, typer.Option(metavar="WAY", help="lazy or eager. Default: the scenario's.")] = None,
    order: Annotated[str | None, typer.Option(metavar="NAME", help="Who goes next among held turns.")] = None,
    replicas: Annotated[
        str | None,
        typer.Option(metavar="1,2,4", help="Play with so many engines of each kind. Default: as the scenario says."),
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recorded sessions instead of the package's own.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw windows, usage, hit rates and throughput over time.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once. Default: the number of cores.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios and exit.")] = False,
) -> None:
    """What will my cluster do? Play agents, proxy and engines in virtual time, with the real gate and the real laws.

    concur-proxy simulate think-5s --laws unlimited,aimd --sweep fixed --plot out.png
    """
    from rich.console import Console

    from concur_proxy.simulate.command import SimulateOptions, list_scenarios
    from concur_proxy.simulate.command import simulate as run

    if list_ or not scenarios:
        list_scenarios(Console())
        return
    options = SimulateOptions(
        scenarios=scenarios,
        laws=_laws(laws),
        sweep=sweep,
        seed=seed,
        seeds=seeds,
        pause=pause,
        order=order,
        replicas=_counts(replicas),
        traces=traces,
        as_json=json,
        plot=plot,
        jobs=jobs,
    )
    raise typer.Exit(run(options, Console()))


def _counts(text: str | None) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")] if text else []
    if not all(1 <= count <= 256 for count in counts):
        raise ConfigError(f"--replicas {text}: must be whole numbers from 1 to 256, such as 1,2,4")
    return counts


def _laws(text: str | None) -> list[str]:
    from concur_proxy.config import ControlSettings

    if text is None:
        return ["unlimited", ControlSettings().law.value]
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))

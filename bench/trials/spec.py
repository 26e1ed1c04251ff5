"""What an experiment is: an engine, agents, loads, and the ways by which the agents reach the engine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from concur_proxy.bench.conversation import History
from concur_proxy.bench.families import Family
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.workloads import RecordedAgents, SyntheticAgents
from concur_proxy.sim.plans import arrivals
from concur_proxy.sim.scenario import ArrivalsPart
from concur_proxy.sim.workload import SessionScript


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Engine(Part):
    """Real vLLM; ``tests.rig`` has the meaning of the fields."""

    kind: Literal["vllm", "vllm-cpu"] = "vllm"
    kv_tokens: int
    max_len: int = 16_384
    speed: float = 1.0
    prompt_tokens_details: bool = True


class Way(Part):
    """How agents reach the engine: straight, where nothing is said."""

    proxy: tuple[str, ...] | None = None
    """Flags of ``concur-proxy serve``."""
    settings: dict[str, str] = {}
    """Environment variables of the proxy."""
    keeps_state: bool = False
    """The proxy starts with what it learned in the round before; one round is played before all and not counted."""
    router: tuple[str, ...] | None = None
    """Flags of ``vllm-router``."""
    programs: dict[str, Any] | None = None
    """Its configuration of program scheduling, as JSON."""
    requests_at_once: int | None = None
    """The clients' own limit on requests under way, all agents together."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Way:
        if self.proxy is not None and self.router is not None:
            raise ValueError("a way has either proxy or router")
        return self


class Agents(Part):
    """Who plays. ``synthetic`` and ``recorded`` have the fields of the classes in ``concur_proxy.bench.workloads``."""

    synthetic: dict[str, Any] | None = None
    recorded: dict[str, Any] | None = None
    refills: int = Field(default=0, ge=0)
    """So many times another agent begins where one has ended."""
    arrivals: ArrivalsPart | None = None
    """When they begin, as in scenarios of the simulator; else all at once. The load is their number then."""

    def families(self, load: int) -> tuple[Family, ...]:
        scripts = self.scripts(load)
        if self.arrivals is None:
            return tuple(map(Family, scripts))
        starts = arrivals(self.arrivals, Random("arrivals"))
        return tuple(Family(script, start_s=start) for script, start in zip(scripts, starts, strict=False))

    def scripts(self, load: int) -> tuple[SessionScript, ...]:
        sessions = load * (1 + self.refills)
        if self.recorded is not None:
            return RecordedAgents(sessions=sessions, **self.recorded).scripts()
        return SyntheticAgents(sessions=sessions, **(self.synthetic or {})).scripts()


class Play(Part):
    """How they play: fields of ``PlayOptions``."""

    stop_after_s: float | None = None
    warm_up_s: float = 0.0
    timeout_s: float | None = None
    max_tries: int = 100
    stream: bool = False
    arrivals_per_s: float | None = None
    history: History = History.FULL

    def options(self, way: Way, load: int, words: list[str] | None) -> PlayOptions:
        given = {**self.model_dump(), "concurrency": load, "requests_at_once": way.requests_at_once}
        return PlayOptions(**given, **({"words": words} if words else {}))


class Experiment(Part):
    """One file of ``bench/experiments``."""

    title: str
    about: str
    engine: Engine
    agents: Agents
    play: Play = Play()
    loads: tuple[int, ...]
    """Agents at once; each is an experiment of its own."""
    rounds: int = Field(default=3, ge=1)
    ways: dict[str, Way]
    compare: tuple[tuple[str, str], ...] = ()
    """Pairs of ways whose ratio is told; ``best fixed`` is the best of those whose name starts with ``fixed``."""

    @classmethod
    def read(cls, path: Path) -> Experiment:
        """ValueError where the file is not one, with the place."""
        return cls.model_validate(yaml.safe_load(path.read_text()))

    def key(self, load: int, way: str) -> str:
        """Return what a run depends on, in short: runs of the same key are runs of the same thing."""
        given = [self.engine, self.agents, self.play, self.ways[way]]
        told = [part.model_dump(mode="json", exclude_defaults=True) for part in given]  # new settings change no old key
        text = json.dumps([load, *told], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

"""A scenario as its file writes it: engines, agents, arrivals, what the proxy can see, and what goes wrong.

Tokens are tokens, ``_s`` are seconds of virtual time. ``docs/simulator.md`` tells all keys with examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from concur_proxy.sim.part import Part
from concur_proxy.sim.profiles import PROFILES
from concur_proxy.sim.quantities import Quantity, quantity
from concur_proxy.sim.step import EngineConfig, StepCost


class CostPart(Part):
    """Seconds of a step: a + b·tokens + c·decoding requests + d·their context tokens."""

    a: float = Field(gt=0)
    b: float = Field(ge=0)
    c: float = Field(ge=0)
    d: float = Field(ge=0)


class EnginePart(Part):
    """One engine: a profile of ``concur-proxy engine``, and what differs from it."""

    profile: str | None = None
    kv_tokens: int | None = Field(None, ge=256)
    cost: CostPart | None = None
    token_budget: int | None = Field(None, ge=1)
    """Tokens of one step (``max_num_batched_tokens``)."""
    max_running: int | None = Field(None, ge=1)
    """Requests that run at once (``max_num_seqs``)."""
    max_queued: int | None = Field(None, ge=0)
    """Requests that wait in the engine; further ones are answered 503, as vLLM does where it is told to."""
    block_size: int = Field(16, ge=1, le=1024)
    """Tokens of a KV block; larger ones are faster to simulate and hit a little less."""

    @field_validator("profile")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and name not in PROFILES:
            raise ValueError(f"is none of {', '.join(PROFILES)}")
        return name

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.profile is None and (self.kv_tokens is None or self.cost is None):
            raise ValueError("needs a profile, or kv_tokens and cost")
        return self

    @property
    def longest_context(self) -> int:
        """Tokens of prompt and output that it takes: what its cache holds, or its model knows."""
        profile = PROFILES.get(self.profile or "")
        most = self.config().max_request_tokens
        return min(most, profile.model.max_len) if profile is not None else most

    def config(self) -> EngineConfig:
        """What the engine model takes."""
        profile = PROFILES.get(self.profile or "")
        cost = StepCost(**self.cost.model_dump()) if self.cost else None
        if profile is not None:
            cost = cost or profile.cost
        assert cost is not None
        kv_tokens = self.kv_tokens or (profile.kv_tokens if profile else 0)
        running = self.max_running or (profile.max_num_seqs if profile else 256)
        budget = self.token_budget or (profile.max_num_batched_tokens if profile else 8192)
        return EngineConfig(
            blocks=kv_tokens // self.block_size + 1,
            cost=cost,
            block_size=self.block_size,
            max_num_seqs=min(running, budget),
            max_num_batched_tokens=budget,
        )


class BackendPart(Part):
    """Engines of one kind; those that serve the same model stand in for each other."""

    name: str = Field("engine", min_length=1)
    model: str = Field("model", min_length=1)
    count: int = Field(1, ge=1, le=256)
    engine: EnginePart


class ArrivalsPart(Part):
    """When sessions begin: all ``at_s``, or at random at ``rate_per_s``, or ``wave`` of them ``every_s``.

    ``surge`` multiplies the rate from ``surge_at_s`` on, for ``surge_s`` seconds or, without that, for good.
    """

    at_s: float = Field(0.0, ge=0)
    rate_per_s: float | None = Field(None, gt=0)
    wave: int | None = Field(None, ge=1)
    every_s: float | None = Field(None, gt=0)
    surge: float = Field(1.0, gt=0)
    surge_at_s: float = Field(0.0, ge=0)
    surge_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.wave is None) != (self.every_s is None):
            raise ValueError("waves need both wave (sessions) and every_s (seconds)")
        if self.wave is not None and self.rate_per_s is not None:
            raise ValueError("has both rate_per_s and wave: give one of them")
        if self.surge != 1.0 and self.rate_per_s is None:
            raise ValueError("surge multiplies rate_per_s, which is missing")
        return self


class ChildrenPart(Part):
    """Sub-agents: after each turn, the last apart, ``count`` sessions begin with this ``chance``."""

    chance: float = Field(gt=0, le=1)
    count: int = Field(1, ge=1, le=64)
    waits: bool = True
    """The parent's next turn comes when all of them are done."""
    turns: Quantity = quantity(5)
    first_prompt: Quantity = quantity(2000)
    new_prompt: Quantity = quantity(600)
    output: Quantity = quantity(250)
    think_s: Quantity = quantity(2)


class AgentsPart(Part):
    """Sessions that are alike: drawn at random, or recorded ones."""

    sessions: int = Field(ge=1, le=100_000)
    model: str | None = None
    """Which backends they go to; needed where there are several models."""
    arrivals: ArrivalsPart = ArrivalsPart()
    unseen: bool = False
    """Their requests go past the proxy; the run does not wait for them."""
    endless: bool = False
    """When one of them ends another begins."""
    goodbye: bool = True
    """The last turn says that it is the last; else the proxy learns it from silence."""
    cut: bool = False
    """Answers end at their length, so that none looks like a tool call or a final one."""
    tenant: str = ""
    """Whose share of the engines they take."""
    urgency: int = 0
    """Of their turns; higher goes first."""
    deadline_s: float | None = Field(None, gt=0)
    """Within which they want each answer."""
    prefix_tokens: int = Field(0, ge=0)
    """System prompt and tools that all of them share; recorded sessions have their own."""
    prefix: int = Field(0, ge=0, le=100_000)
    """Which system prompt that is: agents with another number have another one."""
    turns: Quantity = quantity(20)
    first_prompt: Quantity = quantity(2000)
    new_prompt: Quantity = quantity(600)
    output: Quantity = quantity(250)
    think_s: Quantity = quantity(5)
    rewrite_share: float = Field(0.0, ge=0, le=1)
    """Of the turns, the first apart, that start again from the prefix."""
    history: Literal["kept", "dropped", "changed"] = "kept"
    """What clients send back of generated text: all of it, none (reasoning), or other words of the same length."""
    children: ChildrenPart | None = None
    recorded: Literal["coding-agents"] | None = None
    """Play the recorded sessions that ship with the package."""
    max_turns: int | None = Field(None, ge=1)
    max_context: int | None = Field(None, ge=1)
    longest_think_s: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _seen_ones_end(self) -> Self:
        if self.endless and not self.unseen:
            raise ValueError("only unseen agents may be endless, else the run has no end")
        return self


class SignalsPart(Part):
    """What the proxy can see of its engines."""

    interval_s: float = Field(1.0, gt=0, le=60)
    delay_s: float = Field(0.02, ge=0, le=10)
    """From the engine's page to the control loop."""
    usage_noise: float = Field(0.0, ge=0, le=1)
    """Standard deviation of the noise on the gauge of KV usage."""
    metrics: bool = True
    """Whether the engine has metrics at all."""
    cached_tokens: bool = True
    """Whether answers tell their cached tokens."""
    capacity: bool = True
    """Whether the engine tells its capacity."""


class ClientPart(Part):
    """How patient clients are."""

    timeout_s: float | None = Field(None, gt=0)
    """They give a turn up after this, and try again."""
    retries: int = Field(2, ge=0, le=1000)
    """Of one turn, after a refusal, a failure or a timeout; then the session ends as failed."""
    retry_delay_s: float = Field(1.0, ge=0)
    bytes_per_token: float = Field(3.6, gt=0)
    """Of request bodies."""


class FaultPart(Part):
    """What goes wrong: ``lost`` and ``back`` (the engine), ``blind`` and ``seeing`` (its metrics), ``flush`` (its idle
    cache), ``capacity`` (only ``share`` of the cache is left).
    """

    at_s: float = Field(ge=0)
    kind: Literal["lost", "back", "blind", "seeing", "flush", "capacity"]
    backend: str = "engine"
    share: float = Field(1.0, gt=0, le=1)
    told: bool = False
    """The engine's metrics tell the new capacity."""


class Scenario(Part):
    about: str = Field(min_length=1)
    """One line for ``--list``."""
    notes: str = ""
    name: str = ""
    """The file's name, where it is from a file."""
    backends: tuple[BackendPart, ...]
    agents: tuple[AgentsPart, ...]
    signals: SignalsPart = SignalsPart()
    client: ClientPart = ClientPart()
    gate: Mapping[str, Any] = {"max_wait_s": 86_400.0}
    """Settings of the gate that differ from its defaults; in scenarios nobody is refused for waiting long."""
    faults: tuple[FaultPart, ...] = ()
    stop_after_s: float | None = Field(None, gt=0)
    """Count what was done until then, instead of the time until all is done."""
    give_up_after_s: float = Field(1_000_000.0, gt=0)
    """A run that takes longer is ended, and says so."""
    sweep_from: int | None = Field(None, ge=1)
    sweep_to: int | None = Field(None, ge=1)
    """Fixed windows that ``--sweep fixed`` tries, per backend."""

    @property
    def engines(self) -> dict[str, BackendPart]:
        """Every single backend by its name: those with a count have a number behind it."""
        return {
            part.name if part.count == 1 else f"{part.name}-{index}": part
            for part in self.backends
            for index in range(1, part.count + 1)
        }

    def longest_context(self, model: str) -> int:
        """Tokens that every engine of a model takes."""
        return min(part.engine.longest_context for part in self.backends if part.model == model)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.backends or not self.agents:
            raise ValueError("needs at least one entry in backends and one in agents")
        names, models = self.engines, {part.model for part in self.backends}
        if len(names) != sum(part.count for part in self.backends):
            raise ValueError("two backends have the same name")
        for agents in self.agents:
            if agents.model is None and len(models) > 1:
                raise ValueError(f"agents need a model: there are {', '.join(sorted(models))}")
            if agents.model is not None and agents.model not in models:
                raise ValueError(f"no backend serves the model {agents.model}; there are {', '.join(sorted(models))}")
        for fault in self.faults:
            if fault.backend not in names:
                raise ValueError(f"fault at {fault.at_s:g} s: no backend is called {fault.backend}")
        if all(agents.unseen for agents in self.agents):
            raise ValueError("all agents are unseen: there is nothing to control")
        return self

"""What an embedded engine can be told, and what it becomes together with its profile."""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.errors import ConfigError
from concur_proxy.sim.profiles import PROFILES, Profile
from concur_proxy.sim.step import EngineConfig

BLOCK_SIZE = 16
"""Tokens per KV block, as vLLM has it on CUDA."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """None stands for what the profile says."""

    profile: str = "laptop"
    host: str = "127.0.0.1"
    port: int = 8000
    kv_tokens: int | None = None
    """Size of the KV cache, the null block among it, as ``kv_cache_size_tokens`` of vLLM counts."""
    speed: float = 1.0
    """How many times faster than the profile's hardware all steps are."""
    seed: int = 0
    model: str | None = None
    cached_tokens: bool = True
    """Report cached tokens in each answer's usage, which vLLM does only when told to."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    max_queued: int | None = None
    """Answer 503 to a request while so many wait; None: never."""
    tool_calls: bool = False
    """Call a tool whenever the request offers one, not only when it must be called."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Options made definite."""

    profile: Profile
    model: str
    max_model_len: int
    engine: EngineConfig


def deploy(options: EngineOptions) -> Deployment:
    """Combine options and profile. ConfigError names what does not go together."""
    profile = PROFILES.get(options.profile)
    if profile is None:
        raise ConfigError(f"profile: {options.profile!r} is not one of {', '.join(PROFILES)}")
    if not options.speed > 0:
        raise ConfigError(f"speed: {options.speed} must be above 0")
    kv_tokens = profile.kv_tokens if options.kv_tokens is None else options.kv_tokens
    if kv_tokens < 2 * BLOCK_SIZE:
        raise ConfigError(f"kv_tokens: {kv_tokens} must be at least {2 * BLOCK_SIZE}: two blocks of {BLOCK_SIZE}")
    seqs, budget = _limits(options, profile)
    engine = EngineConfig(
        blocks=kv_tokens // BLOCK_SIZE,
        cost=profile.cost.faster(options.speed),
        block_size=BLOCK_SIZE,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
    )
    return Deployment(profile, options.model or profile.model.name, _max_len(options, profile, engine), engine)


def _limits(options: EngineOptions, profile: Profile) -> tuple[int, int]:
    seqs = profile.max_num_seqs if options.max_num_seqs is None else options.max_num_seqs
    budget = (
        profile.max_num_batched_tokens if options.max_num_batched_tokens is None else options.max_num_batched_tokens
    )
    if not 1 <= seqs <= budget:
        raise ConfigError(f"max_num_seqs: {seqs} must be from 1 to max_num_batched_tokens = {budget}")
    return seqs, budget


def _max_len(options: EngineOptions, profile: Profile, engine: EngineConfig) -> int:
    if options.max_model_len is None:
        return min(profile.model.max_len, engine.max_request_tokens)
    most = engine.max_request_tokens
    if not 2 <= options.max_model_len <= most:
        raise ConfigError(f"max_model_len: {options.max_model_len} must be from 2 to {most}, what the cache holds")
    return options.max_model_len

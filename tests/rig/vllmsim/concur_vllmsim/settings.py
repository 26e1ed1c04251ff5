"""What the device is told: one JSON value in one environment variable, which reaches every process of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

VARIABLE = "CONCUR_RIG_DEVICE"


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of one model step.

    The defaults stand for Qwen3-32B in bf16 on one 80 GB card. They are an assumption from its size and the card's
    data sheet (66 GB of weights at 3 TB/s, 64 GFLOP a token at half of 990 TFLOP/s, 256 KB of KV a token); no card
    was measured.
    """

    step: float = 0.022
    """Per step: weights are read once, kernels are launched."""
    token: float = 1.25e-4
    """Per token that the step computes, prefill and decode alike."""
    decode: float = 3e-5
    """Per request that gets its next token without prefill."""
    context: float = 8.7e-8
    """Per token of KV that a decoding request reads."""
    attention: float = 0.0
    """Per pair of a prefilled token and a token before it."""

    def seconds(self, work: StepWork) -> float:
        return (
            self.step
            + self.token * (work.prefilled + work.decodes)
            + self.decode * work.decodes
            + self.context * work.context
            + self.attention * work.pairs
        )


@dataclass(slots=True)
class StepWork:
    """What one step computes, counted."""

    prefilled: int = 0
    decodes: int = 0
    context: int = 0
    pairs: int = 0

    def add(self, *, computed: int, scheduled: int, prompt: int) -> None:
        """Count one request: ``scheduled`` tokens on top of ``computed`` ones, of which ``prompt`` are its prompt."""
        if scheduled == 1 and computed >= prompt:
            self.decodes += 1
            self.context += computed
        else:
            self.prefilled += scheduled
            self.pairs += scheduled * computed + scheduled * (scheduled - 1) // 2


@dataclass(frozen=True, slots=True)
class Device:
    """The simulated device of one engine."""

    words: str
    """JSON file of the tiny model with the token ids to draw from, see ``tinymodel``."""
    costs: StepCosts = field(default_factory=StepCosts)
    speed: float = 1.0
    """Every step takes its costs divided by this."""
    end_probability: float = 0.0
    """Chance of each drawn token to be the end of the text; 0: only ``max_tokens`` and grammars end a request."""
    trace: str | None = None
    """File that gets one JSON line per step."""

    def variables(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Device:
        values = json.loads(environment[VARIABLE])
        return cls(**{**values, "costs": StepCosts(**values["costs"])})

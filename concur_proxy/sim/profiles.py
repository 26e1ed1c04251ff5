"""Named deployments: a model on a number of cards, and from that the engine's step cost and KV capacity.

Nothing here was measured on a card. Models come from their published ``config.json``, cards from their makers' data
sheets, and the rest is the arithmetic below with the efficiency factors that stand beside their reasons:

- a step reads every weight once, so ``a`` = weight bytes ÷ bandwidth (+ the all-reduces of tensor parallelism);
- a token costs two floating point operations per active parameter, so ``b`` = 2 · parameters ÷ FLOP/s;
- a decoding request reads its context's keys and values, so ``d`` = KV bytes per token ÷ bandwidth;
- KV memory = what vLLM may use of each card - weights - working memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from concur_proxy.sim.step import StepCost

GIB = 1 << 30
MEMORY_SHARE = 0.92
"""``gpu_memory_utilization`` of vLLM 0.33 by default."""
WORKING_SHARE = 0.03
"""Activations, CUDA graphs and communication buffers: 2-3 GB on an 80 GB card as vLLM's start-up profiling reports."""
BANDWIDTH_SHARE = 0.9
"""Streaming reads reach about nine tenths of a data sheet's memory bandwidth."""
FLOPS_SHARE = 0.53
"""Large dense matrix products in prefill reach about half of a data sheet's dense FLOP/s."""
EXPERT_FLOPS_SHARE = 0.35
"""Products of single experts are smaller, and tokens travel to their experts and back."""
SECONDS_PER_DECODE = 3e-5
"""Sampling, detokenising and bookkeeping on the host per decoding request."""
SECONDS_PER_ALL_REDUCE = 1e-5
"""Latency of a small all-reduce over NVLink; a layer has two."""
SECONDS_PER_FAR_ALL_REDUCE = 3e-5
"""The same over the network between nodes."""
CARDS_PER_NODE = 8
TYPICAL_DECODES = 32
"""Batch at which a mixture of experts is taken: it decides how many different experts a step reads."""


@dataclass(frozen=True, slots=True)
class Card:
    """``bandwidth`` in bytes/s, ``flops`` dense per second at 16 and at 8 bits per weight."""

    name: str
    memory_gib: float
    bandwidth: float
    flops16: float
    flops8: float
    source: str


@dataclass(frozen=True, slots=True)
class Model:
    """Parameter counts are in units, ``expert_parameters`` those of all routed experts together."""

    name: str
    parameters: float
    active_parameters: float
    bytes_per_weight: int
    layers: int
    kv_values_per_layer: int
    """16-bit numbers that one token leaves in the cache of one layer."""
    kv_shards: int
    """Over how many cards these can be divided; beyond it each further card holds a copy."""
    max_len: int
    source: str
    expert_parameters: float = 0.0
    experts_used: int = 0
    experts: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_values_per_layer

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_weight

    @property
    def bytes_read_per_step(self) -> float:
        """All weights that are not routed experts, and the experts that a typical batch's tokens pick between them."""
        if not self.experts:
            return self.weight_bytes
        picked = 1 - (1 - self.experts_used / self.experts) ** TYPICAL_DECODES
        return (self.parameters - self.expert_parameters * (1 - picked)) * self.bytes_per_weight


@dataclass(frozen=True, slots=True)
class Profile:
    """A model served by one engine, tensor-parallel over ``cards`` cards."""

    name: str
    model: Model
    card: Card
    cards: int
    note: str
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def kv_bytes_per_card(self) -> float:
        """Bytes of a token's keys and values on each card."""
        return self.model.kv_bytes_per_token / min(self.cards, self.model.kv_shards)

    @property
    def kv_tokens(self) -> int:
        memory = self.card.memory_gib * GIB
        usable = memory * (MEMORY_SHARE - WORKING_SHARE) - self.model.weight_bytes / self.cards
        return math.floor(usable / self.kv_bytes_per_card)

    @property
    def cost(self) -> StepCost:
        model, card = self.model, self.card
        bandwidth = card.bandwidth * BANDWIDTH_SHARE
        flops = card.flops8 if model.bytes_per_weight == 1 else card.flops16
        flops *= self.cards * (EXPERT_FLOPS_SHARE if model.experts else FLOPS_SHARE)
        return StepCost(
            a=model.bytes_read_per_step / (bandwidth * self.cards) + self._all_reduces(),
            b=2 * model.active_parameters / flops,
            c=SECONDS_PER_DECODE,
            d=self.kv_bytes_per_card / bandwidth,
        )

    def _all_reduces(self) -> float:
        if self.cards == 1:
            return 0.0
        each = SECONDS_PER_ALL_REDUCE if self.cards <= CARDS_PER_NODE else SECONDS_PER_FAR_ALL_REDUCE
        return 2 * self.model.layers * each


A100 = Card("A100 80GB SXM", 80, 2.039e12, 312e12, 312e12, "NVIDIA A100 data sheet; no FP8, INT8 is not used here")
H100 = Card("H100 SXM", 80, 3.35e12, 989e12, 1979e12, "NVIDIA H100 data sheet, dense rates")
H200 = Card("H200 SXM", 140, 4.8e12, 989e12, 1979e12, "NVIDIA H200 data sheet (141 GB, 140 GiB usable), dense rates")
LAPTOP_GPU = Card(
    "RTX 4060 Laptop", 8, 256e9, 29e12, 58e12, "NVIDIA data sheet: 233 sparse INT8 TOPS = 29 dense FP16 TFLOP/s"
)

QWEN3_32B = Model(
    "Qwen/Qwen3-32B", 32.8e9, 32.8e9, 2, 64, 2 * 8 * 128, 8, 40_960,
    "config.json: 64 layers, 8 KV heads of 128, bf16",
)  # fmt: skip
QWEN3_1_7B = Model(
    "Qwen/Qwen3-1.7B", 1.72e9, 1.72e9, 2, 28, 2 * 8 * 128, 8, 40_960,
    "config.json: 28 layers, 8 KV heads of 128, bf16, tied embeddings",
)  # fmt: skip
LLAMA3_70B = Model(
    "meta-llama/Meta-Llama-3-70B-Instruct", 70.6e9, 70.6e9, 2, 80, 2 * 8 * 128, 8, 8_192,
    "config.json: 80 layers, 8 KV heads of 128, bf16, 8k positions",
)  # fmt: skip
DEEPSEEK_V3 = Model(
    "deepseek-ai/DeepSeek-V3", 671e9, 37e9, 1, 61, 512 + 64, 1, 163_840,
    "config.json: 61 layers, latent KV of rank 512 + 64 rotary, the same on every tensor-parallel card; FP8 weights, "
    "bf16 cache; 58 layers of 256 routed experts (3 x 7168 x 2048 each), 8 used",
    expert_parameters=58 * 256 * 3 * 7168 * 2048, experts_used=8, experts=256,
)  # fmt: skip

_BIG = (1024, 8192)
"""vLLM's max_num_seqs and max_num_batched_tokens for H100, H200."""
_SMALL = (256, 2048)
"""... and for the A100 and all smaller cards."""

_ALL = (
    Profile("laptop", QWEN3_1_7B, LAPTOP_GPU, 1, "A small model on a laptop's 8 GB GPU: the default.", *_SMALL),
    Profile("qwen3-32b-1xh100", QWEN3_32B, H100, 1, "Weights fill most of the card; little room for KV.", *_BIG),
    Profile("qwen3-32b-2xh100", QWEN3_32B, H100, 2, "Tensor parallel over two cards.", *_BIG),
    Profile("qwen3-32b-8xh100", QWEN3_32B, H100, 8, "Tensor parallel over a node.", *_BIG),
    Profile("deepseek-v3-8xh200", DEEPSEEK_V3, H200, 8, "H200: 671 GB of weights do not fit 8 H100.", *_BIG),
    Profile("deepseek-v3-16xh100", DEEPSEEK_V3, H100, 16, "Tensor parallel over two nodes.", *_BIG),
    Profile(
        "llama-3-70b-2xa100", LLAMA3_70B, A100, 2, "141 GB of weights need two cards at least; little is left.", *_SMALL
    ),
    Profile("llama-3-70b-4xa100", LLAMA3_70B, A100, 4, "Four cards: room for KV.", *_SMALL),
)
PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _ALL})

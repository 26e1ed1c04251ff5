"""The platform: tells vLLM that there is a device, which needs no kernels, and which executor drives it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from vllm.platforms.interface import Platform, PlatformEnum

if TYPE_CHECKING:
    from vllm.config import VllmConfig

GIB = 1 << 30
BLOCK_TOKENS = 16
"""vLLM's own block size on CUDA."""


class SimulatedPlatform(Platform):
    _enum = PlatformEnum.OOT
    device_name = "simulated"
    device_type = "cpu"  # the few tensors that vLLM makes outside the model
    dist_backend = "gloo"
    device_control_env_var = "CONCUR_RIG_VISIBLE_DEVICES"

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        from .executor import SimulatedExecutor

        parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
        parallel.distributed_executor_backend = SimulatedExecutor
        parallel.worker_cls = "vllm.v1.worker.worker_base.WorkerBase"  # named in checks, never made
        if not cache.user_specified_block_size:
            cache.block_size = BLOCK_TOKENS

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: VllmConfig) -> None:
        """There is no attention backend to ask."""

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return cls.device_name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 80 * GIB

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """There is one only."""

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """The sampler has its own seed."""

    @classmethod
    def inference_mode(cls) -> contextlib.AbstractContextManager[None]:
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Nothing is computed, so every type will do."""

"""A device for vLLM that exists only as a cost model.

API server, scheduler, KV block pool, prefix cache, preemption and metrics are vLLM's own; ``executor`` takes the place
of the workers: it says how long a step takes (``costs``) and which tokens come out (``sampler``).

No installation: vLLM finds the plug-in by the ``.dist-info`` folder beside this package as soon as that folder's
parent is on ``PYTHONPATH``, and it is active only in a process that carries ``settings.VARIABLE``.
"""

from __future__ import annotations

import os

from .settings import VARIABLE


def platform() -> str | None:
    """Entry point of ``vllm.platform_plugins``."""
    return "concur_vllmsim.platform.SimulatedPlatform" if VARIABLE in os.environ else None

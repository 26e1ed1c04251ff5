"""Every engine kind by name, and which one a metrics page comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from concur_proxy.engines import llamacpp, lmdeploy, plain, sglang, tensorrt, tgi, vllm
from concur_proxy.engines.base import Engine

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "vllm": vllm.ENGINE,
        "sglang": sglang.ENGINE,
        "tensorrt": tensorrt.ENGINE,
        "lmdeploy": lmdeploy.ENGINE,
        "llamacpp": llamacpp.ENGINE,
        "tgi": tgi.ENGINE,
        "none": plain.ENGINE,
    }
)


def detect(series: Iterable[str]) -> str | None:
    """Return the kind of engine whose series these are, by their names, or None."""
    names = tuple(series)
    for kind, engine in ENGINES.items():
        if engine.prefixes and any(name.startswith(engine.prefixes) for name in names):
            return kind
    return None

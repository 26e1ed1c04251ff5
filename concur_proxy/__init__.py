"""concur-proxy: admission control for fleets of LLM agents in front of their inference engines.

Reading guide. One request goes from left to right, one control loop runs above it:

    CONTROL   scrape -> signals -> window law -> gate.resize        (once a second, per backend)
                                                  |
    REQUEST   ingress -> identify -> gate (admit | hold | refuse) -> relay -> account -> metrics

- ``model``, ``errors``: the nouns all others share.
- ``core``, ``windows``, ``engines``: every decision, as plain functions of their input and ``now=``.
- ``sim``: engines and agents in virtual time around the same gate and the same laws; ``simulate``: files and plots.
- ``gateway``, ``control``, ``fleet``, ``observe``, ``admin``, ``bench``: sockets, clocks and libraries.
- ``runtime``: puts them together; ``cli``: what a person types.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

__version__ = "0.1.0"


def build() -> str:
    """Tell whether the data path is compiled (deploy/build_hook.py); what it does is the same, how fast is not."""
    gate = find_spec("concur_proxy.core.gate")
    is_compiled = gate is not None and (gate.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
    return "compiled" if is_compiled else "pure Python"

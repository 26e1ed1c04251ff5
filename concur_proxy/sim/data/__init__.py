"""Recorded coding agents that ship with the package: token counts and times of real sessions, no text.

Derived from the public data set ``callanjfox/kv-cache-tester``, directory ``traces``, Apache License 2.0, recorded by
WEKA; what was kept stands in the README beside the file. Results on it must say so: ``ATTRIBUTION``.
"""

from __future__ import annotations

from importlib.resources import files

from concur_proxy.sim.workload import SessionScript, recorded_gzip

ATTRIBUTION = "callanjfox/kv-cache-tester, traces, Apache License 2.0, recorded by WEKA"


def coding_agents() -> tuple[SessionScript, ...]:
    return recorded_gzip(files(__package__).joinpath("coding-agents.jsonl.gz").read_bytes())

"""A port that nobody listens on, for a program that cannot choose one by itself."""

from __future__ import annotations

import socket

HIGHEST = 65_535 - 10_000
"""A member of a Redis Cluster listens on its port plus 10,000 as well."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago, and no higher than `HIGHEST`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        # Asked again while the first is still held: the system gives another.
        return port if port <= HIGHEST else free_port()

"""How many connections the operating system lets the process have."""

from __future__ import annotations

import logging
import resource

MOST = 1 << 20
"""More is of no use to us, and what some programs would count through when we start them."""

logger = logging.getLogger(__name__)


def raise_open_files(connections: int) -> int:
    """Raise the limit on open files as far as we may, often from 1024; return it. Warn where ``connections`` are more.

    That is where it is sure to be too low: running turns have a connection to an engine, besides.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft != resource.RLIM_INFINITY and soft < connections:
        logger.warning(
            "only %d files may be open at once, fewer than server.max_connections = %d: raise the hard limit "
            "(ulimit -Hn), or lower the setting",
            *(soft, connections),
        )
    return soft

"""What one client may take of the proxy: how large a head, how long each step, how many connections.

Time limits cost a request nothing but numbers that its connection notes. One timer turns a wheel; a connection lies in
the slot of the tick at which the earliest of its limits may be over, and is asked only then when it really will be. The
wheel counts its own ticks: a loop that was blocked makes limits longer, never shorter.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

NEVER: Final = 1 << 62
LONGEST_TICK_S: Final = 1.0
TICKS_PER_LIMIT: Final = 4
"""At least: no limit is overrun by more than half of itself."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Durations in seconds; 0 switches a limit off. ``max_connections`` None: as many as come."""

    max_head_bytes: int = 64 << 10
    max_headers: int = 256
    head_timeout_s: float = 30.0
    """From a connection's beginning, or a request's first byte, to the end of its head."""
    body_timeout_s: float = 60.0
    """Between two reads of a body."""
    body_bytes_per_s: float = 256.0
    """Average below which a body is too slow, once it had the time of both limits above."""
    idle_timeout_s: float = 620.0
    """Between an answer and the next request."""
    stall_timeout_s: float = 300.0
    """How long a client may read nothing of an answer that is there."""
    max_connections: int | None = None
    max_connections_per_client: int = 0


class Watched(Protocol):
    """A connection on the wheel, which keeps its slot there."""

    slot: set[Watched] | None

    def due(self) -> int:
        """Return the tick at which a limit will be over if nothing happens; ``NEVER`` while the client owes nothing."""

    def expire(self) -> None:
        """A limit is over."""


class Wheel:
    """The clock of all connections of one server. ``tick`` is what they note."""

    def __init__(self, limits: ClientLimits) -> None:
        durations = (limits.head_timeout_s, limits.body_timeout_s, limits.idle_timeout_s, limits.stall_timeout_s)
        shortest = min((duration for duration in durations if duration), default=math.inf)
        self.tick_s = min(LONGEST_TICK_S, shortest / TICKS_PER_LIMIT)
        self.tick = 0
        self.head, self.body, self.idle, self.stall = map(self._ticks, durations)
        self.bytes_per_tick = limits.body_bytes_per_s * self.tick_s
        self._stride = self._ticks(shortest if shortest < math.inf else 0.0)
        self._slots: dict[int, set[Watched]] = {}
        self._members = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Watched) -> None:
        if self._stride == NEVER:
            return
        self._members += 1
        self._put(connection, connection.due())
        if self._timer is None:
            self._arm()

    def discard(self, connection: Watched) -> None:
        if connection.slot is not None:
            connection.slot.discard(connection)
            connection.slot = None
            self._members -= 1

    def __len__(self) -> int:
        return self._members

    def _ticks(self, duration: float) -> int:
        """Return how many ticks are certainly as long: what is noted may be almost one tick old."""
        return math.ceil(duration / self.tick_s) + 1 if duration else NEVER

    def _put(self, connection: Watched, due: int) -> None:
        # What begins after this look cannot be over before the shortest limit is: no later look is missed.
        at = max(min(due, self.tick + self._stride), self.tick + 1)
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = set()
        slot.add(connection)
        connection.slot = slot

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick_s, self._turn)

    def _turn(self) -> None:
        self.tick += 1
        self._look_at(self._slots.pop(self.tick, ()))
        self._timer = None
        if self._members:
            self._arm()

    def _look_at(self, connections: Iterable[Watched]) -> None:
        for connection in tuple(connections):
            if is_on(connection) and connection.due() <= self.tick:
                connection.expire()
            if is_on(connection):  # the end of one may be that of another
                self._put(connection, connection.due())


def is_on(connection: Watched) -> bool:
    """Tell whether a connection is on the wheel. Asked anew after every call: no type checker may know the answer."""
    return connection.slot is not None


class Census:
    """How many connections each client address has. A client is an IPv4 address, or the /64 of an IPv6 address."""

    def __init__(self, per_client: int) -> None:
        self._per_client = per_client
        self._counts: Counter[str] = Counter()

    def enter(self, host: str) -> str | None:
        """Count a connection and return what to ``leave`` by; None where there is nothing to count."""
        if not self._per_client or not host:
            return None
        client = client_of(host)
        self._counts[client] += 1
        return client

    def leave(self, client: str) -> None:
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    def is_over(self, client: str) -> bool:
        """Tell whether the client has more connections than it may; of the newest, asked as it enters."""
        return self._counts[client] > self._per_client

    def __len__(self) -> int:
        return len(self._counts)


def client_of(host: str) -> str:
    """Return what is counted as one client: whoever has an IPv6 address has the 2**64 around it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return host


def head_bytes(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the size of a request's head as far as it is known."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)

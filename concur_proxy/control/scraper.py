"""Reads the engines' metrics once in every interval, each backend on its own; the control side's HTTP client.

A slow, broken or missing page is reported in words and tried again, less often the longer it lasts; it never ends the
loop, never touches another backend, and two scrapes of one backend never overlap.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

import httpx

from concur_proxy.control.ports import Clock, Fetch, Reply, Unreached
from concur_proxy.control.probe import EngineProbe, Scrape
from concur_proxy.control.target import RANK_HEADER, EngineTarget
from concur_proxy.model import BackendId
from concur_proxy.tasks import end

LONGEST_PAUSE_S = 5.0
"""Between two tries of a page that fails: short enough to see the engine come back before many turns have."""

MAX_PAGE_BYTES = 8 << 20
"""Metrics pages have some 100 kB; whatever is this large is something else."""

KEEPALIVE_S = 4.0
"""Engines close idle connections after 5 s."""

_log = logging.getLogger(__name__)


class HttpFetch:
    """Asks engines over HTTP, on TCP and Unix sockets, through one client."""

    __slots__ = ("_client", "_max_bytes")

    def __init__(self, *, max_bytes: int = MAX_PAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        # A transport of our own, so that proxy variables of the environment do not get between us and the engines.
        self._client = httpx.AsyncClient(transport=_BySocket(), headers={"accept-encoding": "identity"})

    async def __call__(self, target: EngineTarget, path: str, *, timeout_s: float) -> Reply | Unreached:
        url = path if "://" in path else target.base_url + path
        return await self._within(timeout_s, self._get(target, url))

    async def post(self, target: EngineTarget, path: str, body: bytes, *, timeout_s: float) -> Reply | Unreached:
        """Return the answer to a request of our own, which goes once."""
        return await self._within(timeout_s, self._ask(target, target.base_url + path, body))

    async def _within(self, timeout_s: float, asking: Awaitable[Reply | Unreached]) -> Reply | Unreached:
        try:
            async with asyncio.timeout(timeout_s):
                return await asking
        except TimeoutError:
            return Unreached(f"no answer within {timeout_s:g} s", silent=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Unreached(_words(error))

    async def _get(self, target: EngineTarget, url: str) -> Reply | Unreached:
        try:
            return await self._ask(target, url)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            # The engine may just have closed the idle connection that this took; a second one is new.
            return await self._ask(target, url)

    async def _ask(self, target: EngineTarget, url: str, body: bytes | None = None) -> Reply | Unreached:
        headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        if target.rank is not None:
            headers[RANK_HEADER] = str(target.rank)
        socket = None if url.startswith("https:") or not url.startswith(target.base_url) else target.socket_path
        if body is not None:
            headers["content-type"] = "application/json"
        request = self._client.build_request(
            "GET" if body is None else "POST",
            url,
            content=body,
            headers=headers,
            timeout=None,
            extensions={"concur_way": (socket, target.tls)},
        )
        response = await self._client.send(request, stream=True)
        try:
            answer = bytearray()
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > self._max_bytes:
                    return Unreached(f"answer larger than {self._max_bytes >> 20} MB")
            return Reply(response.status_code, answer.decode(errors="replace"))
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()


class _BySocket(httpx.AsyncBaseTransport):
    """One pool for each Unix socket and each kind of trust: httpx ties a transport to them."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        self._pools: dict[tuple[str | None, ssl.SSLContext | None], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        way = request.extensions["concur_way"]
        if way not in self._pools:
            socket, tls = way
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S)
            self._pools[way] = httpx.AsyncHTTPTransport(verify=tls or self._tls, limits=limits, uds=socket)
        return await self._pools[way].handle_async_request(request)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def _words(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, OSError) and cause.strerror:
            return f"cannot connect: {cause.strerror}" if isinstance(error, httpx.ConnectError) else cause.strerror
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return "cannot connect"
    return f"connection lost: {error}" if str(error) else f"connection lost ({type(error).__name__})"


def pause_after(failures: int, *, interval_s: float) -> float:
    """Return the time between two scrapes: doubled for every failure in a row, at most ``LONGEST_PAUSE_S``."""
    return max(interval_s, min(interval_s * 2.0 ** min(failures, 16), LONGEST_PAUSE_S))


class Scraper:
    """Runs one task per backend and tells each outcome to ``tell``."""

    __slots__ = ("_clock", "_fetch", "_interval_s", "_tasks", "_tell", "_timeout_s")

    def __init__(
        self, fetch: Fetch, tell: Callable[[Scrape], None], *, interval_s: float, timeout_s: float, clock: Clock
    ) -> None:
        self._fetch = fetch
        self._tell = tell
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._tasks: dict[BackendId, asyncio.Task[None]] = {}

    def add(self, target: EngineTarget) -> None:
        """Start to scrape a backend; one without metrics is left alone."""
        if target.kind != "none":
            probe = EngineProbe(target, self._fetch, timeout_s=self._timeout_s)
            name = f"scrape {target.backend}"
            self._tasks[target.backend] = asyncio.get_running_loop().create_task(self._watch(probe), name=name)

    async def remove(self, backend: BackendId) -> None:
        """Stop to scrape a backend."""
        await end(self._tasks.pop(backend, None))

    async def aclose(self) -> None:
        for backend in list(self._tasks):
            await self.remove(backend)

    async def _watch(self, probe: EngineProbe) -> None:
        failures = 0
        while True:
            started = self._clock()
            failures = 0 if await self._once(probe) else failures + 1
            spent = self._clock() - started
            await asyncio.sleep(max(0.0, pause_after(failures, interval_s=self._interval_s) - spent))

    async def _once(self, probe: EngineProbe) -> bool:
        try:
            scrape = await probe.scrape(clock=self._clock)
            self._tell(scrape)
        except Exception:  # noqa: BLE001
            # A bug must not stop the watching: without it the window would stay where it is for ever.
            _log.exception("scraping %s failed", probe.target.backend)
            return False
        return scrape.sample is not None

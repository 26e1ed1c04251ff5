"""Listens, serves, and ends in an orderly way: what ``concur-proxy serve`` runs."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response

from concur_proxy.admin import api
from concur_proxy.auth.wall import Wall
from concur_proxy.batch import api as batch_api
from concur_proxy.config import ServerSettings, Settings
from concur_proxy.config.tls import server_context
from concur_proxy.control.condition import State
from concur_proxy.errors import ConcurError
from concur_proxy.gateway.alias import with_aliases
from concur_proxy.gateway.app import Readiness, create_app
from concur_proxy.gateway.headers import HeaderList, lowered
from concur_proxy.gateway.models import ModelList, allowed, ask_all
from concur_proxy.gateway.protocol import fast_lane_protocol
from concur_proxy.gateway.server import Server
from concur_proxy.observe import logs
from concur_proxy.runtime import policy
from concur_proxy.runtime.certificates import Certificates
from concur_proxy.runtime.collector import Collector
from concur_proxy.runtime.engine_child import EngineChild, VllmOptions
from concur_proxy.runtime.facts import gather
from concur_proxy.runtime.files import raise_open_files
from concur_proxy.runtime.memory import keep_freed_memory, leave_out_of_collections
from concur_proxy.runtime.node import Node
from concur_proxy.runtime.operations import Operations
from concur_proxy.runtime.replicas import require_library
from concur_proxy.runtime.siblings import Siblings, meeting_place
from concur_proxy.runtime.workers import run_workers

logger = logging.getLogger(__name__)

LEAST_TOKEN = 16
ASKING_S = 5.0
"""Time from the start within which a backend that has not been asked yet is waited for."""


def serve(
    settings: Settings,
    *,
    vllm: VllmOptions | None = None,
    workers: int = 1,
    announce: Callable[[str], None] = print,
) -> int:
    """Serve until SIGTERM or SIGINT and return the exit status.

    Raises ``ConcurError`` where it cannot listen, ``ConfigError`` for engine flags that cannot work.
    """
    logs.configure(settings.log)
    raise_open_files(settings.server.max_connections)
    keep_freed_memory()
    failures = Failures()
    child = EngineChild(vllm, failures.add) if vllm is not None else None
    settings = child.added_to(settings) if child is not None else settings
    listener = listen(settings.server)
    if workers > 1:
        require_library()  # each of them would end at once, and be started again without end
        announce(_greeting(settings, listener))
        with meeting_place() as folder:
            return run_workers(
                workers,
                lambda number: _run(
                    *(settings, listener, None, _say_nothing, Failures()),
                    siblings=Siblings(Path(folder), workers, number),
                ),
            )
    return _run(settings, listener, child, announce, failures)


def _say_nothing(_: str) -> None:
    """One greeting is enough."""


def _run(
    settings: Settings,
    listener: socket.socket,
    child: EngineChild | None,
    announce: Callable[[str], None],
    failures: Failures,
    *,
    siblings: Siblings | None = None,
) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, listener, child, announce, failures, siblings=siblings))
    if failures.message is not None:
        sys.stderr.write(f"concur-proxy: {failures.message}\n")
    return 0 if failures.message is None else 1


class Failures:
    """Why the proxy has to end, if it does."""

    def __init__(self) -> None:
        self.message: str | None = None
        self.happened = asyncio.Event()

    def add(self, message: str) -> None:
        self.message = message
        self.happened.set()


async def _serve(
    settings: Settings,
    listener: socket.socket,
    child: EngineChild | None,
    announce: Callable[[str], None],
    failures: Failures,
    *,
    siblings: Siblings | None = None,
) -> None:
    node = Node(settings)
    server = _server(node, siblings)
    await node.start()
    if siblings is not None:
        await siblings.start(lambda accept: node.metrics.render(gather(node), accept)[0])
    watch = asyncio.create_task(_end_on_failure(server, failures)) if child is not None else None
    collector = asyncio.create_task(Collector(lambda: not node.handler.turns).run(), name="garbage collections")
    try:
        if child is not None:
            child.start()
        leave_out_of_collections()
        announce(_greeting(settings, listener))
        await server.serve(sockets=[listener])
    finally:
        collector.cancel()
        if child is not None:
            await child.stop()
        if watch is not None:
            watch.cancel()
        if siblings is not None:
            await siblings.stop()
        await node.stop()


async def _end_on_failure(server: Server, failures: Failures) -> None:
    """A proxy whose own engine cannot be kept alive is of no use to anyone."""
    await failures.happened.wait()
    server.should_exit = True


def _server(node: Node, siblings: Siblings | None = None) -> Server:
    settings = node.settings.server
    limits = policy.client_limits(settings)
    app = _app(node, siblings)
    config = uvicorn.Config(
        app if node.doorkeeper is None else Wall(app, node.doorkeeper.access),
        http=fast_lane_protocol(node.handler, limits),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who the peer is decides who may manage: no header may change that
    )
    config.load()
    config.ssl = served = server_context(settings)
    node.watches.append(Certificates(lambda: [served, *(target.tls for target in node.targets.values())]))
    return Server(config, node.handler, grace_s=settings.grace_s, limits=limits)


def _app(node: Node, siblings: Siblings | None = None) -> FastAPI:
    app = create_app(models=lambda headers: _models(node, headers), readiness=lambda: _readiness(node))

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        page, media_type = node.metrics.render(gather(node), accept)
        if siblings is not None:
            page = await siblings.page(accept, page)
        return Response(page, media_type=media_type)

    app.add_api_route("/metrics", metrics)
    if node.batches is not None:
        batch_api.install(app, node.batches)
    else:
        batch_api.install_off(app)
    token = node.settings.server.admin_token
    if token is not None and len(token.get_secret_value()) < LEAST_TOKEN:
        logger.warning(
            "server.admin_token has fewer than %d characters: who reaches the port can try them all; "
            "`openssl rand -hex 32` makes a good one",
            LEAST_TOKEN,
        )
    api.install(app, Operations(node), token=token, namespace_of=node.handler.namespace_of)
    return app


async def _models(node: Node, headers: HeaderList) -> ModelList:
    """Ask with the client's own key; where the proxy checks keys, with each backend's, for what the caller may use."""
    if node.doorkeeper is None:
        return with_aliases(await ask_all(node.pools_up(), headers), node.settings.fleet.aliases)
    caller = node.doorkeeper.access.caller(lowered(headers))
    found = with_aliases(await ask_all(node.pools_up(), []), node.settings.fleet.aliases)
    return allowed(found, caller.may_use if caller is not None else lambda _: False)


def _readiness(node: Node) -> Readiness:
    """Ready: some backend is up, callers can be known, the other replicas know of this one, the proxy does not end.

    At the start all backends have been asked, too: else the first to answer would get the sessions of all.
    """
    reports = {str(backend): node.health.report(backend) for backend in node.targets}
    up = any(node.dispatcher.is_up(backend) for backend in node.targets)
    detail: dict[str, object] = {
        "backends": {name: (report.reason or report.state) if report else "unknown" for name, report in reports.items()}
    }
    young = node.clock() - node.started_at < ASKING_S
    asked = not (young and any(report and report.state == State.UNKNOWN.value for report in reports.values()))
    if not (joined := node.replicas is None or node.replicas.has_joined):
        detail["replicas"] = "waits for the others to say what they use"
    if cut_off := node.replicas is not None and node.replicas.is_cut_off:
        detail["replicas"] = "is cut off from Redis, which others reach"
    if not (knows_callers := node.doorkeeper is None or node.doorkeeper.is_ready):
        detail["identity provider"] = "its keys are not known yet"
    ready = up and asked and joined and knows_callers and not cut_off and not node.handler.shutting_down
    return Readiness(ready, detail)


def listen(settings: ServerSettings) -> socket.socket:
    """Return a socket bound as the settings say; raise ``ConcurError`` where that is not possible."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConcurError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
            "Name another address with --host and --port."
        ) from None
    return listener


def _greeting(settings: Settings, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "http" if settings.server.tls_cert_file is None else "https"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    engines = ", ".join(backend.url for backend in settings.backends)
    mode = "" if settings.gate.mode == "enforce" else " (observing: nothing is held)"
    return f"concur-proxy listens on {url} in front of {engines}, law {settings.control.law.value}{mode}"

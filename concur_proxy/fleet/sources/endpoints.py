"""The ready endpoints of a Kubernetes service, by its EndpointSlices: listed once, then watched.

The official client blocks, so it has a thread of its own; whatever it finds is told in the event loop. A pod that
terminates is not ready any more, which is when its engine shall finish what it runs.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from concur_proxy.config import BackendSettings
from concur_proxy.errors import ConfigError
from concur_proxy.fleet.sources.base import Backends, Tell

WATCH_S = 60
"""After which the list is asked for anew: what a watch has missed does not last."""
CONNECT_TIMEOUT_S = 5.0
RETRY_S = 2.0
PAUSE_S = 0.2
"""Between a watch that has ended and the next list, should the server end them at once."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_log = logging.getLogger(__name__)


def require_client() -> None:
    """Raise ``ConfigError`` where the client library is not installed."""
    if importlib.util.find_spec("kubernetes") is None:
        raise ConfigError(
            "fleet.kubernetes_service needs the Kubernetes client; install it with: pip install 'concur-proxy[k8s]'"
        )


def connect() -> Any:
    """Return a client of the API server: as a pod's service account, or as the kubeconfig file says."""
    kubernetes = _library()
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_config(client_configuration=configuration)
    return kubernetes.client.ApiClient(configuration)


def _library() -> Any:
    """Import the client only where it is used: that takes a second."""
    return importlib.import_module("kubernetes")


async def watch_service(service: str, port: str | None, tell: Tell, *, connect: Callable[[], Any] = connect) -> None:
    """Tell the ready endpoints of ``namespace/name`` or ``name``, whenever they have changed, for ever."""
    loop, found = asyncio.get_running_loop(), asyncio.Queue[Backends]()
    watcher = Watcher(service, port, connect, lambda backends: loop.call_soon_threadsafe(found.put_nowait, backends))
    thread = threading.Thread(target=watcher.run, name="kubernetes", daemon=True)
    thread.start()
    told: Backends | None = None
    try:
        while True:
            backends = await found.get()
            if backends != told:
                _tell(tell, f"fleet.kubernetes_service {service}", backends)
                told = backends
    finally:
        watcher.stopped.set()


def _tell(tell: Tell, name: str, backends: Backends) -> None:
    try:
        tell(name, backends)
    except ConfigError as error:
        _log.warning("%s: %s", name, error.message)


class Watcher:
    """What runs in the thread. ``found`` is called there with every whole list."""

    def __init__(
        self, service: str, port: str | None, connect: Callable[[], Any], found: Callable[[Backends], object]
    ) -> None:
        namespace, _, self._name = service.rpartition("/")
        self._namespace = namespace or _own_namespace()
        self._port = port
        self._connect = connect
        self._found = found
        self._slices: dict[str, Any] = {}
        self._problem: str | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        """List and watch until stopped; where that fails, again after a pause."""
        api: Any = None
        while not self.stopped.is_set():
            try:
                api = api or self._connect()
                self._list_and_watch(api)
                self.stopped.wait(PAUSE_S)
            except Exception as error:  # noqa: BLE001 - the client, urllib3 and the credentials each have their own kinds
                self._report(error)
                self.stopped.wait(RETRY_S)

    def _list_and_watch(self, api: Any) -> None:
        kubernetes = _library()
        listing = kubernetes.client.DiscoveryV1Api(api).list_namespaced_endpoint_slice
        asked = {"namespace": self._namespace, "label_selector": f"kubernetes.io/service-name={self._name}"}
        listed = listing(**asked, _request_timeout=CONNECT_TIMEOUT_S)
        self._slices = {one.metadata.name: one for one in listed.items}
        self._tell()
        events = kubernetes.watch.Watch().stream(
            listing,
            **asked,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=WATCH_S,
            _request_timeout=(CONNECT_TIMEOUT_S, WATCH_S + CONNECT_TIMEOUT_S),
        )
        for event in events:
            if self.stopped.is_set():
                return
            self._take(event["type"], event["object"])

    def _take(self, kind: str, one: Any) -> None:
        if kind == "DELETED":
            self._slices.pop(one.metadata.name, None)
        elif kind in ("ADDED", "MODIFIED"):
            self._slices[one.metadata.name] = one
        self._tell()

    def _tell(self) -> None:
        self._problem = None
        if not self.stopped.is_set():
            self._found(backends_of(self._slices.values(), self._port))

    def _report(self, error: Exception) -> None:
        status = getattr(error, "status", None)
        words = f"the API server answers {status} {getattr(error, 'reason', '')}".strip() if status else str(error)
        if status == 403:
            words += ": the service account needs get, list and watch on endpointslices"
        if words != self._problem:
            self._problem = words
            _log.warning("fleet.kubernetes_service: %s; the backends stay as they are", words)


def backends_of(slices: Iterable[Any], port: str | None) -> Backends:
    """Return the ready endpoints of ``slices``, each once, in an order of their own."""
    urls = {url for one in slices for url in _urls(one, port)}
    return tuple(BackendSettings(url=url) for url in sorted(urls))


def _urls(one: Any, wanted: str | None) -> Iterable[str]:
    ports = [each for each in one.ports or () if each.port and wanted in (None, each.name, str(each.port))]
    for endpoint in one.endpoints or () if ports else ():
        ready = endpoint.conditions.ready if endpoint.conditions is not None else None
        if ready is not False and endpoint.addresses:  # unknown counts as ready
            address = endpoint.addresses[0]
            yield f"http://{f'[{address}]' if ':' in address else address}:{ports[0].port}"


def _own_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"

"""An API server that knows EndpointSlices of one service: lists them, and streams changes, over real sockets."""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PATH = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"


def endpoint_slice(name, *addresses, ports=(("http", 8000),), ready=True, kind="IPv4"):
    """A slice; ``ready`` may also be a mapping from address to its condition."""
    condition = ready if isinstance(ready, dict) else dict.fromkeys(addresses, ready)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "resourceVersion": "1"},
        "addressType": kind,
        "ports": [{"name": port, "port": number, "protocol": "TCP"} for port, number in ports],
        "endpoints": [{"addresses": [one], "conditions": {"ready": condition[one]}} for one in addresses],
    }


class Cluster:
    """Serves on a free port as long as the context lasts."""

    def __init__(self, *slices, namespace="ns", service="vllm", token=None):
        self.slices = {one["metadata"]["name"]: one for one in slices}
        self.path = PATH.format(namespace)
        self.selector = f"kubernetes.io/service-name={service}"
        self.token = token
        self.status = 200
        self.lists = self.watches = 0
        self._events = []
        self._lock = threading.Lock()

    def __enter__(self):
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                cluster.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.end_watches()
        self.server.shutdown()
        self.server.server_close()

    # what happens in the cluster

    def change(self, kind, one):
        """Tell all watches of a change; later lists have it."""
        name = one["metadata"]["name"]
        if kind == "DELETED":
            self.slices.pop(name)
        else:
            self.slices[name] = one
        with self._lock:
            for events in self._events:
                events.put({"type": kind, "object": one})

    def end_watches(self):
        with self._lock:
            for events in self._events:
                events.put(None)

    # HTTP

    def answer(self, request):
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            self._json(request, 401, {"kind": "Status", "code": 401})
        elif self.status != 200:
            self._json(request, self.status, {"kind": "Status", "code": self.status})
        elif url.path != self.path or query.get("labelSelector") != [self.selector]:
            self._json(request, 404, {"kind": "Status", "code": 404})
        elif query.get("watch", [""])[0].lower() == "true":
            self._watch(request)
        else:
            self.lists += 1
            items = list(self.slices.values())
            listed = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "items": items}
            self._json(request, 200, {**listed, "metadata": {"resourceVersion": str(self.lists)}})

    def _json(self, request, status, body):
        data = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("content-type", "application/json")
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _watch(self, request):
        events = queue.Queue()
        with self._lock:
            self._events.append(events)
        request.send_response(200)
        request.send_header("content-type", "application/json")
        request.send_header("transfer-encoding", "chunked")
        request.end_headers()
        self.watches += 1
        while (event := events.get()) is not None:
            line = json.dumps(event).encode() + b"\n"
            request.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        request.wfile.write(b"0\r\n\r\n")
        with self._lock:
            self._events.remove(events)

    def kubeconfig(self):
        user = {"token": self.token} if self.token else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "c", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }

"""Turns as spans: their tree, times and attributes, what the engine is told, and real receivers of both protocols."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as wire
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from concur_proxy.config import TracingSettings
from concur_proxy.errors import ConfigError
from concur_proxy.observe.tracing import Tracing
from concur_proxy.runtime.traces import tracing_of
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.gateway.harness import ok, request
from tests.gateway.test_handler import plain, scenario

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Recorded:
    """Spans of a proxy that answered as a scenario says."""

    def __init__(self, **settings: object) -> None:
        self.sink = InMemorySpanExporter()
        self.tracing = Tracing(TracingSettings(endpoint="http://collector", **settings), self.sink)

    def spans(self) -> list:
        """All spans, in the order in which they began; a child after its parent."""
        self.tracing.close()
        return sorted(self.sink.get_finished_spans(), key=lambda span: (span.start_time, -span.end_time))

    def named(self, name: str) -> list:
        return [span for span in self.spans() if span.name == name]


def play(recorded: Recorded, engine=plain, headers: bytes = b"") -> list:
    """Let one turn through and return the requests that the engine saw."""
    seen = []

    async def test(proxy, served):
        await proxy.ask(headers=headers)
        seen.extend(served.seen)

    scenario(test, engine, observer=recorded.tracing)
    return seen


def test_a_turn_is_a_tree_of_spans_one_within_the_other():
    recorded = Recorded()
    play(recorded, headers=b"X-Session-ID: agent-17\r\n")
    root, call = recorded.spans()[:2]
    assert (root.name, root.kind, root.parent) == ("POST chat", SpanKind.SERVER, None)
    assert call.kind is SpanKind.CLIENT
    assert call.parent.span_id == root.context.span_id
    assert root.start_time <= call.start_time <= call.end_time <= root.end_time
    assert root.attributes["gen_ai.conversation.id"] == call.attributes["gen_ai.conversation.id"] == "agent-17"
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["http.response.status_code"] == root.attributes["http.response.status_code"] == 200
    assert [event.name for event in call.events] == ["first byte"]
    assert root.status.status_code is StatusCode.UNSET


def test_the_engine_is_told_of_the_call_and_the_call_belongs_to_the_clients_trace():
    recorded = Recorded(sample=0.0)  # the client decides
    (seen,) = play(recorded, headers=f"traceparent: 00-{TRACE}-{PARENT}-01\r\n".encode())
    root, call = recorded.spans()[:2]
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert seen.values(b"traceparent") == [f"00-{TRACE}-{call.context.span_id:016x}-01".encode()]


@pytest.mark.parametrize("headers", [b"", f"traceparent: 00-{TRACE}-{PARENT}-00\r\n".encode()])
def test_what_is_not_sampled_passes_as_it_came(headers):
    recorded = Recorded(sample=0.0)
    (seen,) = play(recorded, headers=headers)
    assert seen.values(b"traceparent") == [headers[13:-2]] * bool(headers)
    assert recorded.spans() == []


def test_a_turn_that_an_engine_gives_back_has_a_span_for_each_try():
    async def full_at_first(_seen, to_client):
        if not answered:
            answered.append(1)
            await to_client.send(ok(b"{}", status=b"429 Too Many Requests", extra=b"retry-after: 0\r\n"))
        else:
            await to_client.send(ok())

    answered: list[int] = []
    recorded = Recorded()
    first, second = [seen.values(b"traceparent") for seen in play(recorded, full_at_first)]
    calls = [span for span in recorded.spans() if span.kind is SpanKind.CLIENT]
    assert [call.attributes["http.response.status_code"] for call in calls] == [429, 200]
    assert [call.attributes.get("error.type") for call in calls] == ["put_back", None]
    assert calls[0].end_time <= recorded.named("held")[0].start_time
    assert first != second


def test_an_error_is_told_on_the_span():
    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(request(method=b"PUT"))
        await client.answer()
        await client.close()

    recorded = Recorded()
    scenario(test, plain, observer=recorded.tracing)
    (root,) = recorded.spans()
    assert (root.name, root.status.status_code) == ("PUT chat", StatusCode.ERROR)
    assert root.attributes["error.type"] == "client_error"


def test_nobody_traces_without_an_endpoint():
    assert tracing_of(TracingSettings()) is None


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "concur_proxy.observe.tracing", None)
    with pytest.raises(ConfigError, match=r"pip install 'concur-proxy\[otel\]'"):
        tracing_of(TracingSettings(endpoint="http://collector:4318"))


# over sockets


@contextlib.contextmanager
def http_receiver() -> Iterator[tuple[str, list]]:
    received: list = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
            received.append(wire.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def grpc_receiver() -> Iterator[tuple[str, list]]:
    received: list = []

    class Servicer(service.TraceServiceServicer):
        def Export(self, request, context):
            received.append(request)
            return wire.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", received
    server.stop(1).wait()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_real_receiver_gets_the_spans_of_a_real_turn(protocol):
    receiver = {"http": http_receiver, "grpc": grpc_receiver}[protocol]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "a secret question"}],
        "max_tokens": 3,
        "ignore_eos": True,
        "stream": True,
    }
    with receiver() as (endpoint, received), EngineServer(EngineOptions(port=0, model="m", speed=20.0)) as engine:
        env = {"CONCUR_TRACING__ENDPOINT": endpoint, "CONCUR_TRACING__PROTOCOL": protocol}
        with ProxyProcess([engine.url], env=env) as proxy:
            answer = httpx.post(f"{proxy.url}/v1/chat/completions", json=body, headers={"X-Session-ID": "agent-17"})
            assert answer.status_code == 200
        (resource,) = [each for request in received for each in request.resource_spans]
    told = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert told["service.name"] == "concur-proxy"
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert spans.keys() == {"POST chat", "chat m", "first token"}
    root, call, first = (spans[name] for name in ("POST chat", "chat m", "first token"))
    assert (call.parent_span_id, first.parent_span_id) == (root.span_id, call.span_id)
    assert (
        root.start_time_unix_nano <= first.start_time_unix_nano <= first.end_time_unix_nano <= root.end_time_unix_nano
    )
    attributes = {item.key: item.value for item in call.attributes}
    assert attributes["gen_ai.request.model"].string_value == "m"
    assert attributes["gen_ai.conversation.id"].string_value == "agent-17"
    assert attributes["gen_ai.usage.output_tokens"].int_value == 3
    assert attributes["gen_ai.usage.input_tokens"].int_value > 0
    assert "secret" not in str(received)

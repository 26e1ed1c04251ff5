"""Turns as OpenTelemetry spans, by the conventions for generative AI; docs/tracing.md shows one.

    POST chat                   from ingress to the end of the answer
    ├── held                    each time that the gate lets it wait
    └── chat MODEL              each time that an engine gets it: this one's context is what the engine is told
        └── first token         until the first byte of generated text

Only ``runtime`` imports this, and only where an endpoint is set: OpenTelemetry is an extra. Spans leave in the
background; what cannot be sent is dropped. No prompt text, no keys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from concur_proxy import __version__
from concur_proxy.config import TracingSettings
from concur_proxy.model import BackendId
from concur_proxy.observe.turnlog import TurnLog

EXPORT_TIMEOUT_S = 5
OPERATIONS = {"responses": "chat", "messages": "chat", "completions": "text_completion"}
"""Names of the conventions for families of paths; others are called as they are."""
COMPLETED = "completed"


class Read(Protocol):
    """A request that has been read: ``gateway.observer.Ingress``."""

    @property
    def at(self) -> float: ...
    @property
    def request_id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


def exporter(settings: TracingSettings) -> SpanExporter:
    """Return what sends spans; headers and certificates come from OpenTelemetry's own environment variables."""
    assert settings.endpoint is not None
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        insecure = settings.endpoint.startswith("http:")
        return Grpc(endpoint=settings.endpoint, insecure=insecure, timeout=EXPORT_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)


class Tracing:
    """Begins the story of each turn that is to be recorded. What a client's ``traceparent`` says comes first."""

    def __init__(self, settings: TracingSettings, sink: SpanExporter | None = None) -> None:
        resource = Resource.create({"service.name": settings.service_name, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, sampler=ParentBasedTraceIdRatio(settings.sample))
        self._provider.add_span_processor(BatchSpanProcessor(sink or exporter(settings)))
        self._tracer = self._provider.get_tracer("concur-proxy", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, ingress: Read) -> TurnSpans | None:
        """Return who takes down a turn's story; None where it is not sampled."""
        context = self._propagator.extract(ingress.headers)
        # The clock that tells times here is monotonic; spans want the time of day.
        epoch_ns = time.time_ns() - int(time.monotonic() * 1e9)
        root = self._tracer.start_span(
            ingress.kind,
            context=context,
            kind=SpanKind.SERVER,
            start_time=epoch_ns + int(ingress.at * 1e9),
        )
        if not root.is_recording():
            return None
        return TurnSpans(self._tracer, root, ingress, epoch_ns)

    def close(self) -> None:
        """Send what is left, and end; may take as long as an export may."""
        self._provider.shutdown()


class TurnSpans:
    """The spans of one turn; times are those of the dispatcher's clock."""

    __slots__ = ("_arrived_at", "_call", "_epoch_ns", "_held", "_kind", "_root", "_sent_at", "_tracer")

    def __init__(self, tracer: trace.Tracer, root: Span, ingress: Read, epoch_ns: int) -> None:
        self._tracer = tracer
        self._root = root
        self._epoch_ns = epoch_ns
        self._arrived_at = ingress.at
        self._kind = ingress.kind
        self._held: Span | None = None
        self._call: Span | None = None
        self._sent_at = ingress.at
        root.set_attribute("concur.request.id", ingress.request_id)

    @property
    def traceparent(self) -> bytes:
        """The context of the newest call to an engine, before the first one that of the request."""
        context = (self._call or self._root).get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def held(self, at: float) -> None:
        self._end_call(at, "put_back")
        self._held = self._start("held", at, SpanKind.INTERNAL, self._root)

    def admitted(self, at: float, backend: BackendId) -> None:
        if self._held is not None:
            self._held.set_attribute("concur.backend", backend)
            self._end_held(at)

    def sent(self, at: float, backend: BackendId) -> None:
        self._end_call(at, "backend_lost")
        self._sent_at = at
        self._call = self._start(self._operation, at, SpanKind.CLIENT, self._root)
        self._call.set_attribute("concur.backend", backend)
        self._call.set_attribute("gen_ai.operation.name", self._operation)
        self._call.set_attribute("gen_ai.provider.name", "anthropic" if self._kind == "messages" else "openai")

    def first_byte(self, at: float, status: int) -> None:
        if self._call is not None:
            self._call.add_event("first byte", timestamp=self._ns(at))
            self._call.set_attribute("http.response.status_code", status)

    def ended(self, at: float, turn: TurnLog) -> None:
        self._end_held(at)
        if self._call is not None:
            self._describe(self._call, turn)
            self._end_call(at, turn.outcome)
        self._root.update_name(f"{turn.method} {self._kind}")
        self._root.set_attributes(
            {
                "http.request.method": turn.method,
                "url.path": turn.path,
                "http.response.status_code": turn.status,
                "concur.outcome": turn.outcome,
                "concur.session.rule": turn.rule,
                "concur.queued_s": turn.queued_s or 0.0,
            }
        )
        if turn.session is not None:
            self._root.set_attribute("gen_ai.conversation.id", turn.session.id)
        _judge(self._root, turn.outcome)
        self._root.end(self._ns(at))

    def _describe(self, call: Span, turn: TurnLog) -> None:
        if turn.model is not None:
            call.update_name(f"{self._operation} {turn.model}")
            call.set_attribute("gen_ai.request.model", turn.model)
        if turn.session is not None:
            call.set_attribute("gen_ai.conversation.id", turn.session.id)
        if (usage := turn.usage) is not None:
            call.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            call.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
            if usage.cached_tokens is not None:
                call.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        if turn.first_token_s is not None:
            first_token_at = self._arrived_at + turn.first_token_s
            self._start("first token", self._sent_at, SpanKind.INTERNAL, call).end(self._ns(first_token_at))
            call.set_attribute("gen_ai.response.time_to_first_chunk", max(0.0, first_token_at - self._sent_at))

    @property
    def _operation(self) -> str:
        return OPERATIONS.get(self._kind, self._kind)

    def _start(self, name: str, at: float, kind: SpanKind, parent: Span) -> Span:
        context = trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context=context, kind=kind, start_time=self._ns(at))

    def _end_call(self, at: float, outcome: str) -> None:
        if self._call is not None:
            _judge(self._call, outcome)
            self._call.end(self._ns(at))
            self._call = None

    def _end_held(self, at: float) -> None:
        if self._held is not None:
            self._held.end(self._ns(at))
            self._held = None

    def _ns(self, at: float) -> int:
        return self._epoch_ns + int(at * 1e9)


def _judge(span: Span, outcome: str) -> None:
    if outcome != COMPLETED:
        span.set_attribute("error.type", outcome)
        span.set_status(StatusCode.ERROR, outcome)

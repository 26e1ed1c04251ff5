"""One request on its way through the proxy: from the bytes that were read to the answer that is accounted for.

Whatever happens, a turn ends through ``_end``, exactly once, and gives its lease or its place back there (invariant 2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from concur_proxy.auth.caller import Caller
from concur_proxy.core import identity as sessions
from concur_proxy.core.lineage import Lineage, Recognised
from concur_proxy.core.usage import UsageReader
from concur_proxy.errors import (
    BackendLostError,
    ConcurError,
    ModelNotFoundError,
    NoBackendError,
    ShuttingDownError,
    TurnRefusedError,
)
from concur_proxy.gateway import credentials, hints, ingress, replies, retries, unnamed
from concur_proxy.gateway.alias import with_model
from concur_proxy.gateway.background import UNFINISHED, StateReader
from concur_proxy.gateway.body import NOTHING, BodyFacts, fields_of, with_usage_requested
from concur_proxy.gateway.connection import Failure
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.headers import ResponseHead, request_lines
from concur_proxy.gateway.heartbeat import HeldStream
from concur_proxy.gateway.late import LateRelay
from concur_proxy.gateway.observer import Ingress, TurnObserver, TurnTrace
from concur_proxy.gateway.outcomes import FAILURES, OVERLOADED, failure_error, header_value, outcome_of, pause_of
from concur_proxy.gateway.paths import Kind, Route
from concur_proxy.gateway.relay import Parked, Relay, is_event_stream
from concur_proxy.gateway.responses import id_in_path
from concur_proxy.gateway.resume import ContinuationReader, StreamRecord, Tap, may_resume
from concur_proxy.gateway.rounds import Rounds
from concur_proxy.gateway.upstream import UpstreamCall
from concur_proxy.gateway.whole import reader_of
from concur_proxy.model import Admitted, BackendId, Lease, Outcome, PoolId, Refused, SessionKey, TurnFacts
from concur_proxy.observe.turnlog import TurnLog

if TYPE_CHECKING:
    from concur_proxy.gateway.handler import Handler

logger = logging.getLogger(__name__)

OPENED: Final = 200
CLIENT_LEFT: Final = 499
REQUEST_ID: Final = b"x-request-id"
NOWHERE: Final[frozenset[BackendId]] = frozenset()
MAX_TRIES: Final = 30
"""How often a turn goes to engines that answer that they are full, before the client gets to see the answer.

Its longest wait usually ends it before.
"""
STATEFUL = (Kind.RESPONSES, Kind.RESPONSE_ITEM)
UNROUTED: Final = Route(Kind.OTHER)
NOBODY: Final = sessions.Identity()


class Turn:
    """One request on its way."""

    __slots__ = (
        "_admitted_at",
        "_arrived_at",
        "_backend",
        "_call",
        "_exchange",
        "_failures",
        "_follows",
        "_found",
        "_handler",
        "_identity",
        "_lease",
        "_lost",
        "_origin",
        "_pool",
        "_record",
        "_relay",
        "_rest",
        "_route",
        "_stream",
        "_tenant",
        "_ticket",
        "_told",
        "_trace",
        "_tries",
        "_wants_event",
    )

    def __init__(self, handler: Handler, exchange: Exchange) -> None:
        self._handler = handler
        self._exchange = exchange
        self._route = exchange.route or UNROUTED
        self._arrived_at = handler.dispatcher.clock()
        self._admitted_at: float | None = None
        self._identity = NOBODY
        self._found: Recognised | None = None
        """By its messages, where it names no session."""
        self._told = NOTHING
        self._tenant = ""
        self._origin = ingress.origin(exchange.lowered, exchange.peer, exchange.scheme)
        self._pool: PoolId | None = None
        self._ticket: int | None = None
        self._lease: Lease | None = None
        self._backend: BackendId | None = None
        self._call: UpstreamCall | None = None
        self._relay: Relay | LateRelay | None = None
        self._stream: HeldStream | None = None
        """The answer to a streaming turn that was held, where it gets signs of life."""
        self._lost = NOWHERE
        self._failures = 0
        self._record: StreamRecord | None = None
        """What a stream has said that may be continued."""
        self._rest: bytes | None = None
        """The request for what its engine did not live to say."""
        self._follows = False
        """The answer tells of a response that goes on, or may go on, without its request."""
        self._trace: TurnTrace | None = None
        self._tries = 0
        self._wants_event = False

    @property
    def backend(self) -> BackendId | None:
        """Where it runs."""
        return self._backend

    # ingress, identify, gate

    def start(self) -> None:
        exchange, handler = self._exchange, self._handler
        if handler.observer is not None:
            self._observe(handler.observer)
        if exchange.error is not None:
            self._reply(exchange.error)
            return
        self._identify()
        if exchange.caller is not None and (refusal := self._forbidden(exchange.caller)) is not None:
            self._reply(refusal)
            return
        self._pool = handler.resolve_pool(self._told.model)
        if handler.shutting_down:
            self._reply(ShuttingDownError("The proxy is shutting down.", retry_after_s=handler.retry_after_s))
        elif self._pool is None:
            self._reply(
                ModelNotFoundError(
                    f"The model {self._told.model!r} is not served here; GET /v1/models lists what is.", param="model"
                )
            )
        elif self._route.gated:
            self._arrive(self._pool)
        else:
            self._place(self._pool)

    def _forbidden(self, caller: Caller) -> ConcurError | None:
        """Tell what a caller may not ask for: some models, and other callers' stored responses."""
        kind, told, exchange = self._route.kind, self._told, self._exchange
        if kind in STATEFUL:
            for wanted in (told.previous_response_id, id_in_path(exchange.path)):
                if (refusal := credentials.foreign(caller, self._handler.origins.owner(wanted))) is not None:
                    return refusal
        return credentials.forbidden(caller, exchange, kind, told.model)

    def _observe(self, observer: TurnObserver) -> None:
        request_id, headers = self._origin.request_id.decode(), self._exchange.lowered
        self._trace = observer.begin(Ingress(self._arrived_at, request_id, self._route.kind.value, headers))
        if self._trace is not None:
            self._origin.traceparent = self._trace.traceparent

    def _identify(self) -> None:
        exchange, handler = self._exchange, self._handler
        familiar, settings = exchange.familiar, handler.settings
        if familiar is not None and familiar.identity is not None and familiar.settings is settings:
            namespace = familiar.namespace
            self._tenant, self._identity = familiar.tenant, familiar.identity
        else:
            namespace = self._read_headers()
        session = None if settings.resume_streams else self._identity.session
        self._told = told = ingress.body_facts(exchange.body, exchange.lowered, handler.conversations, session)
        if handler.aliases and told.model in handler.aliases:
            self._ask_for(told, handler.aliases[told.model])
        if self._identity.session is None:
            self._read_body(told, namespace)
        if self._route.spliceable and told.stream and not told.include_usage and settings.request_usage:
            exchange.body = with_usage_requested(exchange.body, told.fields)
            self._wants_event = True
        if settings.resume_streams and told.fields is not None and may_resume(self._route.kind, told.fields):
            self._record = StreamRecord(self._route.kind, wants_usage=told.include_usage)
        told.fields = None  # held turns are many: they keep the bytes only

    def _read_headers(self) -> str:
        """Find out whose request this is, and of which session by its headers; return the namespace of its sessions."""
        exchange, handler = self._exchange, self._handler
        caller, familiar, settings = exchange.caller, exchange.familiar, handler.settings
        namespace = caller.namespace if caller is not None else handler.namespace_of(exchange.lowered)
        owner = caller.name if caller is not None else namespace
        self._tenant = hints.tenant(owner, settings.tenant_header, exchange.lowered)
        identity = sessions.identify(
            exchange.lowered, None, namespace=namespace, operator_headers=settings.session_headers
        )
        if identity.session is not None and familiar is not None:
            familiar.settings, familiar.namespace = settings, namespace
            familiar.tenant, familiar.identity = self._tenant, identity
        self._identity = identity
        return namespace

    def _read_body(self, told: BodyFacts, namespace: str) -> None:
        """Find out of which session a request is whose headers do not tell."""
        handler, names = self._handler, self._handler.settings.session_headers
        self._identity = sessions.identify(
            self._exchange.lowered, told.fields, namespace=namespace, operator_headers=names
        )
        if self._identity.session is None and handler.lineage is not None and self._route.gated:
            self._recognise(handler.lineage, namespace)

    def _ask_for(self, told: BodyFacts, served: str) -> None:
        """The client has asked for a model by an alias."""
        body = self._exchange.body
        self._exchange.body = with_model(body, fields_of(body) if told.in_part else told.fields, served)
        told.model = served
        if told.fields is not None:
            told.fields = {**told.fields, "model": served}

    def _recognise(self, lineage: Lineage, namespace: str) -> None:
        fields = self._told.fields
        retry = ingress.is_retry(self._exchange.lowered)
        self._found = found = unnamed.recognise(lineage, fields, namespace, retry=retry) if fields else None
        if found is None or fields is None:
            return
        self._identity = unnamed.identity(found, self._identity, fields)
        if found.ended is not None:
            self._handler.dispatcher.end_session(found.ended)

    def _arrive(self, pool: PoolId) -> None:
        exchange = self._exchange
        beat_s = self._handler.settings.heartbeat_s or None if self._told.stream else None
        facts = ingress.turn_facts(
            pool, self._identity, exchange.body, self._told, exchange.lowered, self._tenant, beat_s=beat_s
        )
        if self._handler.popular is not None:
            self._handler.popular.see(facts, exchange.path, exchange.body)
        owners = self._handler.owners
        if owners is not None and not owners.is_ours(facts):
            owners.claim(facts, self._claimed)
        else:
            self._enter(facts)

    def _claimed(self, facts: TurnFacts) -> None:
        """The session is this replica's, or the turn goes on without it; the client may have left meanwhile."""
        if self not in self._handler.turns:
            return
        try:
            self._enter(facts)
        except Exception:
            logger.exception("a turn could not enter the gate")
            self.fail()

    def _enter(self, facts: TurnFacts) -> None:
        self._ticket = self._handler.dispatcher.arrive(facts, self, avoid=self._elsewhere(facts.pool))
        if self._lease is None and self in self._handler.turns:
            self._on_held(self._arrived_at)
            if self._handler.grouping is not None and facts.urgency < 0:
                self._handler.grouping.held(self._ticket, self._exchange.body)

    def _on_held(self, at: float) -> None:
        if self._trace is not None:
            self._trace.held(at)
        beats = self._handler.heartbeats
        if beats is not None and self._told.stream:
            if self._stream is None:
                self._stream = HeldStream(self._exchange, beats, self._own_headers(), self._route.shape)
            beats.start(self._stream)

    def _place(self, pool: PoolId) -> None:
        backend = self._handler.dispatcher.place(pool, avoid=self._elsewhere(pool) | self._lost)
        if backend is None:
            self._reply(
                NoBackendError(
                    "No healthy backend serves this now; GET /readyz says why.",
                    retry_after_s=self._handler.retry_after_s,
                )
            )
        else:
            self._send(backend)

    def _elsewhere(self, pool: PoolId) -> frozenset[BackendId]:
        """Return the backends that do not serve the model, or do not know the response which this request refers to."""
        strangers = self._strangers()
        if self._route.kind not in STATEFUL:
            return strangers
        wanted = self._told.previous_response_id or id_in_path(self._exchange.path)
        home = self._handler.origins.find(wanted)
        up = self._handler.dispatcher.up(pool)
        return frozenset(up) - {home} if home in up and home not in strangers else strangers

    def _strangers(self) -> frozenset[BackendId]:
        """Return the backends of its pool that do not serve its model."""
        strangers = self._handler.strangers
        return strangers.get(self._told.model, NOWHERE) if strangers else NOWHERE

    def granted(self, admitted: Admitted) -> None:
        self._ticket = admitted.ticket
        self._lease = admitted.lease
        self._admitted_at = admitted.lease.admitted_at
        if self._trace is not None:
            self._trace.admitted(self._admitted_at, admitted.lease.backend)
        if self._stream is not None and not self._stream.opened:
            self._stream.close()
            self._stream = None
        try:
            if admitted.lease.backend in self._strangers():  # who came while it waited
                self._wait_again(admitted.lease, not_before=self._admitted_at)
                return
            self._send(admitted.lease.backend)
        except Exception:
            logger.exception("an admitted turn could not be sent")
            self.fail()

    def refused(self, refused: Refused) -> None:
        self._ticket = None
        error: ConcurError = replies.refusal(refused)
        if self._rest is not None:
            error = BackendLostError(f"The engine died, and no other could go on. {error.message}")
        self._reply(error, Outcome.BACKEND_LOST if self._rest is not None else Outcome.CLIENT_ERROR)

    # relay

    def _send(self, backend: BackendId) -> None:
        self._backend = backend
        exchange = self._exchange
        pool = self._handler.pools.get(backend)
        if pool is None:
            self.on_failure(Failure.CONNECT, "the backend was removed")
            return
        body = exchange.body if self._rest is None else self._rest
        # SGLang, which serves higher ones first, puts turns without one behind all others: there zero has to be told.
        if pool.priority_sign and self._lease is not None and (self._lease.turn.urgency or pool.priority_sign > 0):
            body = hints.with_priority(body, pool.priority_sign * self._lease.turn.urgency)
        self._follows = self._route.kind in STATEFUL and self._concerns_background()
        plain = self._wants_event or self._stream is not None or self._follows
        if self._trace is not None:
            self._trace.sent(self._handler.dispatcher.clock(), backend)
            self._origin.traceparent = self._trace.traceparent
        if exchange.familiar is not None and not self._origin.traceparent:
            lines = exchange.familiar.lines(self._origin, identity_only=plain)
        else:
            lines = request_lines(exchange.headers, exchange.lowered, self._origin, identity_only=plain)
        if pool.credential:
            lines.append(pool.credential)
        length = len(body) if body or exchange.method in (b"POST", b"PUT", b"PATCH") else None
        head = pool.request_head(exchange.method, exchange.target, lines, length)
        clock = self._handler.dispatcher.clock
        if self._stream is None:
            self._relay = Relay(exchange, self, clock, strip=self._wants_event)
        else:
            self._relay = LateRelay(self._stream, self, clock, self._route.shape)
        self._call = pool.send(head, body, self._relay, head_only=exchange.head_only)
        if not (self._route.gated and self._handler.settings.retry_generation) and not self._may_repeat():
            self._call.retried = True  # not even where a kept connection may just have died

    def _concerns_background(self) -> bool:
        if self._route.gated:
            return self._told.background
        return id_in_path(self._exchange.path) in self._handler.background

    def wants_parked(self, head: ResponseHead) -> bool:
        """An engine that is full may answer better later, as long as the client has seen nothing."""
        if self._trace is not None:
            self._trace.first_byte(self._handler.dispatcher.clock(), head.status)
        if self._exchange.write_paused and self._call is not None:
            self._call.pause()
        if head.status not in OVERLOADED or self._backend is None:
            return False
        self._handler.on_overloaded(self._backend)
        return self._lease is not None and self._tries + 1 < MAX_TRIES and not self._handler.shutting_down

    def on_parked(self, parked: Parked) -> None:
        lease, dispatcher = self._lease, self._handler.dispatcher
        if lease is None or self._handler.shutting_down:
            parked.release()
            return
        self._tries += 1
        self._wait_again(lease, not_before=dispatcher.clock() + pause_of(parked.head, self._tries))

    def _wait_again(self, lease: Lease, *, not_before: float) -> None:
        """Back among the held, the place in line kept."""
        assert self._ticket is not None
        self._lease = self._backend = self._call = self._relay = None
        self._on_held(self._handler.dispatcher.clock())
        avoid = self._elsewhere(lease.turn.pool) | self._lost
        self._handler.dispatcher.requeue(lease, self._ticket, self, not_before=not_before, avoid=avoid)

    def extra_lines(self, head: ResponseHead) -> list[bytes]:
        """Return what ``_own_headers`` says as lines; an id that the engine tells itself stays."""
        session, lines = self._session(), []
        if REQUEST_ID not in head.values:
            lines.append(b"x-request-id: %b\r\n" % self._origin.request_id)
        if session is not None:
            lines.append(b"x-concur-session: %b\r\n" % header_value(session.id))
        if self._backend is not None:
            lines.append(b"x-concur-backend: %b\r\n" % header_value(self._backend))
        lines.append(b"x-concur-queued-ms: %d\r\n" % int((self._queued_s() or 0.0) * 1000))
        return lines

    def reader_for(self, head: ResponseHead) -> UsageReader | None:
        """Read the usage of turns; what is compressed or an error passes unread."""
        if (
            not (self._route.gated or self._follows)
            or head.status >= 300
            or head.value(b"content-encoding") not in (b"", b"identity")
        ):
            return None
        if self._follows:
            return StateReader(streamed=is_event_stream(head))
        content_type = head.value(b"content-type")
        if self._rest is not None and self._record is not None:
            return ContinuationReader(self._record)
        reader: UsageReader = reader_of(content_type, strip_usage_event=self._wants_event)
        if self._record is not None and is_event_stream(head):
            reader = Tap(reader, self._record)
        lineage, found = self._handler.lineage, self._found
        if lineage is None or found is None or not lineage.wants_answer(found.run):
            return reader
        return unnamed.listening(reader, content_type.decode("latin-1"))

    def on_first_token(self, reader: UsageReader) -> None:
        self._remember(reader)

    def _remember(self, reader: UsageReader) -> None:
        """A response id that the client may come back with belongs to this backend."""
        if reader.response_id is not None and self._backend is not None:
            caller = self._exchange.caller
            owner = caller.namespace if caller is not None else None
            self._handler.origins.remember(reader.response_id, self._backend, owner)

    # the ways it may end

    def on_end(self) -> None:
        assert self._relay is not None
        assert self._relay.head is not None
        if self._relay.reader is not None:
            self._remember(self._relay.reader)
        status = self._relay.head.status
        self._end(outcome_of(status), status, goes_on=self._follows and self._follow(status))

    def _follow(self, status: int, *, left: bool = False) -> bool:
        """Learn what an answer tells of a background response; True where the lease stays with one that goes on.

        ``left``: the client did not stay for all of it. A stream that came to its end has no more to tell.
        """
        reader = self._relay.reader if self._relay is not None else None
        state = reader if isinstance(reader, StateReader) else None
        background = self._handler.background
        if not self._route.gated:
            response_id = id_in_path(self._exchange.path)
            if response_id is not None:
                background.heard(response_id, self._exchange.method, status, state)
            return False
        if state is None or state.response_id is None or self._lease is None or (state.streamed and not left):
            return False
        if state.state not in UNFINISHED:
            return False
        background.keep(state.response_id, self._lease)
        return True

    def on_failure(self, failure: Failure, detail: str) -> None:
        relay, backend = self._relay, self._backend
        assert backend is not None
        is_early = failure is Failure.LOST and relay is not None and not relay.started
        if is_early or failure in (Failure.CONNECT, Failure.LOST_EARLY):
            self._lost |= {backend}
            self._failures += 1
            self._handler.on_lost(backend)
            if self._may_try_again(failure) and self._try_again():
                return
        elif failure in (Failure.LOST, Failure.TIMEOUT) and self._resume(backend, silent=failure is Failure.TIMEOUT):
            return
        error = failure_error(Failure.LOST if self._rest else failure, detail, self._handler.retry_after_s)
        outcome = FAILURES.get(failure, Outcome.BACKEND_LOST)
        if relay is None or not relay.started:
            self._reply(error, outcome)
            return
        assert relay.head is not None
        self._end(outcome, relay.head.status)
        relay.break_off(error, self._route.shape)

    def _may_try_again(self, failure: Failure) -> bool:
        """Once: a request during which two engines died, or one twice, is not tried a third time."""
        handler = self._handler
        if self._failures > 1 or handler.shutting_down:
            return False
        if failure is not Failure.CONNECT and not self._may_repeat():
            return False
        return handler.retries.take(handler.begun)

    def leave_backend(self) -> None:
        """Its engine has been put to sleep: if nothing has come from there and others may answer, one of them does."""
        call, relay, handler = self._call, self._relay, self._handler
        if call is None or relay is None or relay.started or handler.shutting_down or self._tries + 1 >= MAX_TRIES:
            return
        if self._able() and self._may_repeat():
            call.abort()
            self._tries += 1
            self._try_again()

    def _may_repeat(self) -> bool:
        generation = self._handler.settings.retry_generation
        return retries.may_repeat(self._route.kind, self._exchange.method, generation=generation)

    def _resume(self, backend: BackendId, *, silent: bool) -> bool:
        """Have another engine go on with a stream, or the same where it has come back; False where that cannot be."""
        relay, handler, record = self._relay, self._handler, self._record
        if record is None or (silent and not self._has_others(backend)):
            return False
        if not isinstance(relay, Relay) or not relay.is_between_events or not record.is_plain or record.finished:
            return False
        if self._failures or handler.shutting_down or not handler.retries.take(handler.begun):
            return False
        rest = record.continuation(self._exchange.body)
        if rest is None:
            return False
        self._rest = rest
        self._lost |= {backend}
        self._failures = 1
        handler.on_lost(backend)
        self._stream = HeldStream(self._exchange, handler.heartbeats or Rounds(0.0), [], self._route.shape)
        self._stream.opened = True
        if not self._try_again():
            return False
        handler.retries.resumed += 1
        return True

    def _has_others(self, backend: BackendId) -> bool:
        return bool(self._able() - {backend})

    def _able(self) -> frozenset[BackendId]:
        """Return the backends that are up and may serve it."""
        pool = self._pool
        return NOWHERE if pool is None else frozenset(self._handler.dispatcher.up(pool)) - self._elsewhere(pool)

    def _try_again(self) -> bool:
        """Go to another backend, or where there is none to the same."""
        dispatcher, pool, lease = self._handler.dispatcher, self._pool, self._lease
        able = self._able()
        if not able:
            return False
        pause_s = 0.0
        if not able - self._lost:
            self._lost, pause_s = NOWHERE, retries.SAME_PAUSE_S
        if lease is not None:
            self._wait_again(lease, not_before=dispatcher.clock() + pause_s)
        elif self._backend is not None and pool is not None:
            dispatcher.unplace(self._backend)
            self._backend = self._call = self._relay = None
            self._place(pool)
        return True

    def client_gone(self) -> None:
        """The client left: held or running, nothing of the turn stays."""
        if self._call is not None:
            self._call.abort()
        running = self._backend is not None
        if self._ticket is not None and not running:
            self._handler.dispatcher.abandon(self._ticket)
        started = self._relay is not None and self._relay.started and self._relay.head is not None
        status = self._relay.head.status if started and self._relay and self._relay.head else CLIENT_LEFT
        if self._stream is not None and self._stream.opened:
            status = OPENED
        goes_on = self._follows and started and self._route.gated and self._follow(status, left=True)
        self._end(Outcome.CANCELLED, status, word=None if running else "abandoned", goes_on=goes_on)

    def stop(self) -> None:
        """The proxy ends: so does this turn."""
        exchange = self._exchange
        if self._call is not None:
            self._call.abort()
        if self._ticket is not None and self._backend is None:
            self._handler.dispatcher.abandon(self._ticket)
        self._end(Outcome.SHUTDOWN, CLIENT_LEFT)
        exchange.cut(hard=True)

    def fail(self) -> None:
        """A bug of ours: the client hears of it, the lease comes back."""
        if self in self._handler.turns:
            self._reply(ConcurError("The proxy failed to serve this request."), Outcome.ENGINE_ERROR)

    def pause(self) -> None:
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        if self._call is not None:
            self._call.resume()

    def _reply(self, error: ConcurError, outcome: Outcome = Outcome.CLIENT_ERROR) -> None:
        """Answer by ourselves."""
        exchange = self._exchange
        own, stream = self._own_headers(), self._stream
        self._end(outcome, error.status, word=error.code if isinstance(error, TurnRefusedError) else None)
        if stream is not None and stream.opened:
            stream.fail(error)
            return
        headers = [*exchange.server_headers, *own, *replies.retry_headers(error)]
        if exchange.allow:
            headers.append((b"allow", exchange.allow))
        if self._handler.shutting_down:
            exchange.keep_alive = False
        body = replies.error_json(error, self._route.shape)
        exchange.write(
            replies.message(error.status, headers, body, keep_alive=exchange.keep_alive, head_only=exchange.head_only)
        )
        exchange.done()

    # account

    def _end(self, outcome: Outcome, status: int, *, word: str | None = None, goes_on: bool = False) -> None:
        """Give back what is held, tell the ledger and the log. The only way out.

        ``goes_on``: the lease is not ours to give back any more.
        """
        handler, relay = self._handler, self._relay
        handler.turns.discard(self)
        reader = relay.reader if relay is not None else None
        spent = reader.usage if reader is not None else None
        first_token_at = relay.first_token_at if relay is not None else None
        lease, backend = self._lease, self._backend
        session, queued = self._session(), self._queued_s()
        if self._found is not None and handler.lineage is not None:
            unnamed.settle(handler.lineage, self._found, reader, completed=outcome is Outcome.COMPLETED)
        self._lease = self._backend = self._ticket = self._call = self._relay = None
        if self._stream is not None:
            self._stream.close()
        if goes_on:
            pass
        elif lease is not None:
            reason = reader.finish_reason if reader is not None else None
            handler.dispatcher.finish(lease, outcome, spent, finish_reason=reason, first_token_at=first_token_at)
        elif backend is not None:
            handler.dispatcher.unplace(backend)
        exchange, now = self._exchange, handler.dispatcher.clock()
        told = TurnLog(
            request_id=self._origin.request_id.decode(),
            method=exchange.method.decode("latin-1"),
            path=exchange.path.decode("latin-1"),
            kind=self._route.kind._value_,
            status=status,
            outcome=word or outcome._value_,  # ``value`` is a property in Python
            total_s=now - self._arrived_at,
            session=session,
            rule=self._identity.rule,
            session_rejected=self._identity.rejected,
            backend=backend,
            queued_s=queued,
            first_token_s=None if first_token_at is None else first_token_at - self._arrived_at,
            usage=spent,
            model=self._told.model,
            tenant=self._tenant,
            cold=self._urgency(lease) < 0,
            traceparent=self._origin.traceparent.decode() or exchange.lowered.get("traceparent", ""),
        )
        handler.on_turn(told)
        if self._trace is not None:
            self._trace.ended(now, told)

    def _urgency(self, lease: Lease | None) -> int:
        return lease.turn.urgency if lease is not None else hints.urgency(self._told.hints[0], self._exchange.lowered)

    def _session(self) -> SessionKey | None:
        return self._lease.session if self._lease is not None else self._identity.session

    def _queued_s(self) -> float | None:
        if not self._route.gated:
            return None
        until = self._admitted_at if self._admitted_at is not None else self._handler.dispatcher.clock()
        return until - self._arrived_at

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        """Return what every answer carries."""
        headers = [(REQUEST_ID, self._origin.request_id)]
        session = self._session()
        if session is not None:
            headers.append((b"x-concur-session", header_value(session.id)))
        if self._backend is not None:
            headers.append((b"x-concur-backend", header_value(self._backend)))
        headers.append((b"x-concur-queued-ms", str(int((self._queued_s() or 0.0) * 1000)).encode()))
        return headers

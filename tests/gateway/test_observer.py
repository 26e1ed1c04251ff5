"""What tracing sees: every turn's story in order, from its beginning to one end."""

import asyncio

import pytest

from tests.gateway.harness import CHAT, ok, request, until
from tests.gateway.test_handler import plain, scenario, silent

RECEIVED = b"traceparent: 00-aa-bb-01\r\n"


class Story:
    def __init__(self, traceparent):
        self.traceparent, self.steps, self.times, self.log = traceparent, ["begin"], [], None

    def _note(self, at, *step):
        self.steps.append(step[0] if len(step) == 1 else step)
        self.times.append(at)

    def held(self, at):
        self._note(at, "held")

    def admitted(self, at, backend):
        self._note(at, "admitted", backend)

    def sent(self, at, backend):
        self._note(at, "sent", backend)

    def first_byte(self, at, status):
        self._note(at, "first_byte", status)

    def ended(self, at, turn):
        self._note(at, "ended")
        self.log = turn


class Observer:
    def __init__(self, traceparent=b"", *, leave_out=False):
        self.traceparent, self.leave_out, self.stories, self.seen = traceparent, leave_out, [], []

    def begin(self, ingress):
        self.seen.append(ingress)
        if self.leave_out:
            return None
        self.stories.append(Story(self.traceparent))
        return self.stories[-1]

    @property
    def steps(self):
        return [story.steps for story in self.stories]


DIRECT = ["begin", ("admitted", "b0"), ("sent", "b0"), ("first_byte", 200), "ended"]


def test_a_turn_that_is_let_in_at_once(loop):
    async def test(proxy, _engine):
        await proxy.ask(headers=RECEIVED)
        assert observer.steps == [DIRECT]
        (story,), (ingress,) = observer.stories, observer.seen
        assert [ingress.at, *story.times] == sorted([ingress.at, *story.times])
        assert (ingress.kind, ingress.headers["traceparent"]) == ("chat", "00-aa-bb-01")
        assert story.log is proxy.turns[0]
        assert story.log.request_id == ingress.request_id

    observer = Observer()
    scenario(test, plain, loop=loop, observer=observer)


def test_a_turn_that_is_held():
    async def slow(_seen, wire):
        await released.wait()
        await wire.send(ok())

    async def test(proxy, engine):
        first, second = await proxy.client(), await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        await second.send(request())
        await until(lambda: proxy.dispatcher.held)
        assert observer.steps[1] == ["begin", "held"]
        released.set()
        for client in (first, second):
            assert (await client.answer()).status == 200
            await client.close()
        assert observer.steps == [DIRECT, ["begin", "held", *DIRECT[1:]]]

    released = asyncio.Event()
    observer = Observer()
    scenario(test, slow, window=1, observer=observer)


def test_a_turn_that_goes_back_in_line():
    async def full_at_first(_seen, wire):
        if not answered:
            answered.append(1)
            await wire.send(ok(b"{}", status=b"429 Too Many Requests", extra=b"retry-after: 0\r\n"))
        else:
            await wire.send(ok())

    async def test(proxy, _engine):
        assert (await proxy.ask()).status == 200
        again = [("first_byte", 429), "held"]
        assert observer.steps == [[*DIRECT[:3], *again, *DIRECT[1:]]]

    answered = []
    observer = Observer()
    scenario(test, full_at_first, observer=observer)


def test_stories_of_those_who_never_come_to_an_engine():
    async def test(proxy, engine):
        assert (await proxy.ask(method=b"PUT")).status == 405
        client = await proxy.client()
        await client.send(request(path=b"/v1/embeddings"))
        await until(lambda: engine.seen)
        client.leave()
        await until(proxy.idle)
        assert observer.steps == [["begin", "ended"], ["begin", ("sent", "b0"), "ended"]]
        assert [story.log.status for story in observer.stories] == [405, 499]

    observer = Observer()
    scenario(test, silent, observer=observer)


@pytest.mark.parametrize("received", [b"", RECEIVED], ids=["none came", "one came"])
@pytest.mark.parametrize("leave_out", [False, True])
def test_the_engine_is_told_of_the_span_that_is_recorded(received, leave_out):
    async def test(proxy, engine):
        await proxy.ask(headers=received + b"tracestate: v=1\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n")
        kept = [received[13:-2]] if received else []
        assert engine.seen[0].values(b"traceparent") == (kept if leave_out else [b"00-cc-dd-01"])
        assert engine.seen[0].values(b"tracestate") == [b"v=1"]
        assert engine.seen[0].values(b"x-hop") == []

    scenario(test, plain, observer=Observer(b"00-cc-dd-01", leave_out=leave_out))


def test_an_observer_without_a_span_of_its_own_passes_on_what_came():
    async def test(proxy, engine):
        await proxy.ask(CHAT, headers=RECEIVED)
        assert engine.seen[0].values(b"traceparent") == [b"00-aa-bb-01"]

    scenario(test, plain, observer=Observer())

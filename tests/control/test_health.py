import asyncio
import json
import time

import pytest

from concur_proxy.control import health as module
from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.health import Health
from concur_proxy.model import BackendEvent, BackendId, Outcome
from tests.control.engines import MODELS, FakeEngine, Page, eventually, models

A, B = BackendId("a"), BackendId("b")
OK = Page("")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "PROBE_S", 0.02)
    monkeypatch.setattr(module, "SUSPECT_S", 0.01)


class Watch:
    def __init__(self, *, timeout_s=5.0):
        self.events, self.models, self.order = [], {}, []
        self.fetch = HttpFetch()
        self.health = Health(
            self.fetch, on_event=self._event, on_models=self._models, clock=time.monotonic, timeout_s=timeout_s
        )

    def _event(self, backend, event):
        self.events.append((backend, event))
        self.order.append(event)

    def _models(self, backend, listed):
        self.models[backend] = listed
        self.order.append("models")

    def state(self, backend=A):
        return self.health.report(backend).state


def watching(body, **options):
    async def main():
        watch = Watch(**options)
        try:
            await body(watch)
        finally:
            await watch.health.aclose()
            await watch.fetch.aclose()

    asyncio.run(main())


def test_a_backend_that_is_down_at_the_start_comes_up_later():
    async def body(watch):
        engine = FakeEngine({"/health": OK, "/v1/models": Page(json.dumps(MODELS))})
        await engine.start()
        await engine.stop()
        watch.health.add(engine.target())
        await eventually(lambda: watch.events == [(A, BackendEvent.LOST)])
        assert watch.health.report(A).reason == "cannot connect to the engine: connection refused"
        await engine.start()
        await eventually(lambda: watch.state() == "up")
        assert watch.events[1:] == [(A, BackendEvent.FLUSHED), (A, BackendEvent.UP)]
        await engine.stop()
        await eventually(lambda: watch.state() == "lost")

    watching(body)


def test_the_models_are_known_before_the_backend_is_up_and_all_fields_are_kept():
    async def body(watch):
        async with FakeEngine({"/health": OK, "/v1/models": Page(json.dumps(MODELS))}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.events)
            assert watch.order[:2] == ["models", BackendEvent.UP]
            assert list(watch.models[A]) == MODELS["data"]

    watching(body)


def test_who_comes_back_may_serve_something_else():
    async def body(watch):
        async with FakeEngine({"/health": OK, "/v1/models": models("m")}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            await engine.stop()
            await eventually(lambda: watch.state() == "lost")
            engine.pages["/v1/models"] = models("n")
            await engine.start()
            await eventually(lambda: watch.state() == "up")
            assert [model["id"] for model in watch.models[A]] == ["n"]

    watching(body)


def test_adapters_that_are_loaded_later_are_seen(monkeypatch):
    monkeypatch.setattr(module, "MODELS_S", 0.0)

    async def body(watch):
        async with FakeEngine({"/health": OK, "/v1/models": models("m")}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: A in watch.models)
            engine.pages["/v1/models"] = models("m", "adapter")
            await eventually(lambda: [model["id"] for model in watch.models[A]] == ["m", "adapter"])

    watching(body)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (Page("<html>"), "no list of models at /v1/models"),
        (Page('{"data": 3}'), "no list of models at /v1/models"),
        (Page(status=401), "/v1/models needs authorization (401): set the backend's api_key"),
        (Page(reset=True), "/v1/models: the engine closed the connection"),
    ],
    ids=["html", "no list", "401", "reset"],
)
def test_a_bad_list_of_models_is_told_and_does_no_harm(page, words):
    async def body(watch):
        async with FakeEngine({"/health": OK, "/v1/models": page}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.health.report(A).models_problem)
            assert words in watch.health.report(A).models_problem
            await eventually(lambda: watch.events == [(A, BackendEvent.UP)])
            assert watch.models == {}

    watching(body)


def test_a_list_that_could_not_be_had_is_asked_for_with_the_next_probe(monkeypatch):
    monkeypatch.setattr(module, "SUSPECT_S", 0.005)
    monkeypatch.setattr(module, "PROBE_S", 0.01)

    async def body(watch):
        async with FakeEngine({"/health": OK, "/v1/models": Page(status=503)}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up" and watch.health.report(A).models_problem)
            engine.pages["/v1/models"] = models("m")
            await eventually(lambda: A in watch.models)
            assert watch.health.report(A).models_problem is None

    watching(body)


def test_entries_that_are_no_models_are_left_out():
    async def body(watch):
        listed = Page(json.dumps({"data": [3, {"name": "x"}, {"id": 7}, {"id": "m", "extra": {"deep": [1]}}]}))
        async with FakeEngine({"/health": OK, "/v1/models": listed}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: A in watch.models)
            assert list(watch.models[A]) == [{"id": "m", "extra": {"deep": [1]}}]

    watching(body)


@pytest.mark.parametrize("pages", [{"/v1/models": models("m")}, {"/v1/models": Page(status=401)}, {}])
def test_an_engine_without_a_health_page_is_up_when_it_answers_at_all(pages):
    async def body(watch):
        async with FakeEngine(pages) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up" and engine.asked["/v1/models"] >= 3)
            assert engine.asked["/health"] == 1

    watching(body)


def test_an_engine_that_says_it_is_ill_is_lost():
    async def body(watch):
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            engine.pages["/health"] = Page(status=503)
            await eventually(lambda: watch.state() == "lost")
            assert watch.health.report(A).reason == "/health answers 503"

    watching(body)


def test_a_backend_that_hangs_keeps_no_other_waiting():
    async def body(watch):
        async with FakeEngine({"/health": Page(hang=True)}) as bad, FakeEngine({"/health": OK}) as good:
            watch.health.add(bad.target("a"))
            watch.health.add(good.target("b"))
            await eventually(lambda: good.asked["/health"] >= 5)
            assert watch.events == [(B, BackendEvent.UP)]
            assert watch.state(A) == "unknown"

    watching(body, timeout_s=60.0)


def test_silence_is_a_bad_probe():
    async def body(watch):
        async with FakeEngine({"/health": Page(hang=True)}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "lost")
            assert watch.health.report(A).reason == "no answer within 0.05 s"

    watching(body, timeout_s=0.05)


def test_a_failed_turn_brings_the_next_probe_forward(monkeypatch):
    monkeypatch.setattr(module, "PROBE_S", 3600.0)

    async def body(watch):
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            await engine.stop()
            watch.health.turn_ended(A, Outcome.BACKEND_LOST)
            await eventually(lambda: watch.state() == "lost")

    watching(body)


def test_client_errors_leave_a_backend_up():
    async def body(watch):
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            for _ in range(100):
                watch.health.turn_ended(A, Outcome.CLIENT_ERROR)
            assert watch.state() == "up"
            for _ in range(100):
                watch.health.turn_ended(A, Outcome.ENGINE_ERROR)
            assert watch.state() == "resting"

    watching(body)


def test_sleep_is_told():
    async def body(watch):
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            watch.health.sleeping(A, asleep=True)
            assert watch.events[-1] == (A, BackendEvent.DRAINING)
            assert watch.state() == "asleep"

    watching(body)


def test_what_is_heard_of_a_backend_that_nobody_watches_is_ignored():
    async def body(watch):
        watch.health.turn_ended(A, Outcome.ENGINE_ERROR)
        watch.health.sleeping(A, asleep=True)
        await watch.health.remove(A)
        assert watch.health.report(A) is None

    watching(body)


def test_a_listener_that_fails_does_not_end_the_watching(caplog):
    async def body(watch):
        def fail(*_):
            raise ZeroDivisionError

        watch.health._on_event = fail
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: engine.asked["/health"] >= 3)

    watching(body)
    assert "probing a failed" in caplog.text


class Prepared:
    """Takes notes of how backends come up; ``problem`` is what trials show."""

    def __init__(self):
        self.trials, self.problem, self.go = [], None, asyncio.Event()
        self.go.set()

    async def __call__(self, target, *, trial):
        self.trials.append(trial)
        await self.go.wait()
        return self.problem if trial else None


def test_a_backend_is_prepared_before_it_takes_turns():
    async def body(watch):
        prepared = watch.health._prepare = Prepared()
        prepared.go.clear()
        async with FakeEngine({"/health": OK, "/v1/models": models("m")}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: prepared.trials == [False])
            assert watch.events == []
            assert watch.models  # known by then
            prepared.go.set()
            await eventually(lambda: watch.events == [(A, BackendEvent.UP)])
            await eventually(lambda: engine.asked["/health"] >= 5)
            assert prepared.trials == [False]

    watching(body)


def test_one_that_wakes_is_prepared_before_it_takes_turns():
    async def body(watch):
        prepared = watch.health._prepare = Prepared()
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            watch.health.sleeping(A, asleep=True)
            watch.health.sleeping(A, asleep=False)
            await eventually(lambda: watch.state() == "up")
            assert prepared.trials == [False, False]
            assert watch.events[-2:] == [(A, BackendEvent.FLUSHED), (A, BackendEvent.UP)]

    watching(body)


def test_after_a_rest_a_trial_decides(monkeypatch):
    monkeypatch.setattr("concur_proxy.control.condition.REST_S", 0.01)

    async def body(watch):
        prepared = watch.health._prepare = Prepared()
        prepared.problem = "/v1/completions answers 500"
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            for _ in range(5):
                watch.health.turn_ended(A, Outcome.ENGINE_ERROR)
            await eventually(lambda: prepared.trials.count(True) >= 2)
            assert watch.state() == "resting"
            assert watch.health.report(A).reason == "a trial failed there: /v1/completions answers 500"
            prepared.problem = None
            await eventually(lambda: watch.state() == "up")
            assert (A, BackendEvent.FLUSHED) not in watch.events

    watching(body)


def test_a_drained_backend_takes_no_turns_until_it_may():
    async def body(watch):
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            watch.health.drain(A, drained=True)
            await eventually(lambda: engine.asked["/health"] >= 3)
            assert watch.state() == "draining"
            watch.health.drain(A, drained=False)
            assert watch.events == [(A, BackendEvent.UP), (A, BackendEvent.DRAINING), (A, BackendEvent.UP)]
            watch.health.drain(B, drained=True)  # nobody

    watching(body)


def test_one_that_was_lost_while_drained_is_prepared_when_it_may_take_turns_again(monkeypatch):
    async def body(watch):
        prepared = watch.health._prepare = Prepared()
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            watch.health.drain(A, drained=True)
            await engine.stop()
            await eventually(lambda: watch.state() == "lost")
            await engine.start()
            await eventually(lambda: watch.state() == "draining")
            assert prepared.trials == [False]
            prepared.go.clear()
            monkeypatch.setattr(module, "PROBE_S", 3600.0)  # the undraining itself must bring the next probe
            watch.health.drain(A, drained=False)
            await eventually(lambda: prepared.trials == [False, False])
            assert (watch.state(), watch.events[-1]) == ("warming", (A, BackendEvent.DRAINING))
            prepared.go.set()
            await eventually(lambda: watch.state() == "up")
            assert watch.events[-2:] == [(A, BackendEvent.FLUSHED), (A, BackendEvent.UP)]

    watching(body)


def test_one_that_was_lost_while_it_rested_is_tried_and_then_warmed(monkeypatch):
    monkeypatch.setattr("concur_proxy.control.condition.REST_S", 0.1)

    async def body(watch):
        prepared = watch.health._prepare = Prepared()
        prepared.problem = "/v1/completions answers 500"
        async with FakeEngine({"/health": OK}) as engine:
            watch.health.add(engine.target())
            await eventually(lambda: watch.state() == "up")
            for _ in range(5):
                watch.health.turn_ended(A, Outcome.ENGINE_ERROR)
            await engine.stop()
            await eventually(lambda: watch.state() == "lost")
            await engine.start()
            await eventually(lambda: len(prepared.trials) > 2)
            assert set(prepared.trials[1:]) == {True}
            prepared.problem = None
            await eventually(lambda: watch.state() == "up")
            assert prepared.trials[-2:] == [True, False]

    watching(body)

import asyncio
import json
import time

import pytest

from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.probe import EngineProbe
from concur_proxy.control.scraper import LONGEST_PAUSE_S, Scraper, pause_after
from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendId
from tests.control.engines import FakeEngine, Page, eventually, metrics
from tests.engines.pages import SGLANG

LOADS = "/v1/loads?include=core"


def scrape_once(pages, *, timeout_s=5.0, max_bytes=8 << 20, times=1, **fields):
    async def main():
        fetch = HttpFetch(max_bytes=max_bytes)
        async with FakeEngine(pages) as engine:
            probe = EngineProbe(engine.target(**fields), fetch, timeout_s=timeout_s)
            outcomes = [await probe.scrape(clock=time.monotonic) for _ in range(times)]
            await fetch.aclose()
            return engine, outcomes[-1]

    return asyncio.run(main())


def test_a_good_page_gives_a_sample_of_the_time_it_was_asked():
    engine, scrape = scrape_once({"/metrics": metrics(running=7)})
    assert (scrape.backend, scrape.kind, scrape.problem) == ("a", "vllm", None)
    assert scrape.sample.running == 7
    assert scrape.sample.at <= time.monotonic()
    assert engine.asked == {"/metrics": 1}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (Page("gone", status=404), "/metrics is missing (404)"),
        (Page(status=401), "/metrics needs authorization (401): set the backend's api_key"),
        (Page("<!doctype html><p>Sign in"), "HTML page at /metrics"),
        (Page("python_info 1\n"), "no known engine series at /metrics"),
        (Page(b"\xff\xfe\x00\x80 binary"), "page without metrics at /metrics"),
        (Page(status=503), "/metrics answers 503"),
        (Page(status=302, headers="location: http://127.0.0.1:9/login\r\n"), "redirects (302)"),
        (Page(hang=True), "/metrics: no answer within 0.2 s"),
        (Page(reset=True), "/metrics: the engine closed the connection"),
        (Page("vllm:num_requests_running 3\n", cut=True), "/metrics: the engine closed the connection"),
        (Page(endless=True), "/metrics: answer larger than 1 MB"),
        (Page("x" * (2 << 20)), "/metrics: answer larger than 1 MB"),
    ],
    ids=["404", "401", "html", "other", "binary", "503", "302", "slow", "reset", "cut", "endless", "huge"],
)
def test_a_bad_page_gives_plain_words(page, words):
    _, scrape = scrape_once({"/metrics": page}, timeout_s=0.2 if page.hang else 5.0, max_bytes=1 << 20)
    assert scrape.sample is None
    assert words in scrape.problem


def test_nobody_there():
    async def main():
        fetch = HttpFetch()
        async with FakeEngine() as engine:
            pass
        probe = EngineProbe(engine.target(), fetch, timeout_s=5.0)
        scrape = await probe.scrape(clock=time.monotonic)
        await fetch.aclose()
        return scrape

    assert asyncio.run(main()).problem == "/metrics: cannot connect to the engine: connection refused"


def test_a_unix_socket(tmp_path):
    path = str(tmp_path / "engine.sock")

    async def main():
        fetch = HttpFetch()
        engine = FakeEngine({"/metrics": metrics(running=5)})
        server = await asyncio.start_unix_server(engine.accept, path)
        target = EngineTarget(BackendId("a"), "http://localhost", socket_path=path)
        scrape = await EngineProbe(target, fetch, timeout_s=5.0).scrape(clock=time.monotonic)
        await fetch.aclose()
        server.close()
        await engine.hang_up()
        return scrape

    assert asyncio.run(main()).sample.running == 5


def test_the_api_key_goes_along():
    engine, _ = scrape_once({"/metrics": metrics()}, api_key="sesame")
    assert "authorization: bearer sesame" in engine.headers[0]


@pytest.mark.parametrize("manner", [{"close": True}, {"stale": True}], ids=["before", "while it is used"])
def test_an_idle_connection_that_the_engine_closes_costs_nothing(manner):
    _, scrape = scrape_once({"/metrics": Page(metrics().body, **manner)}, times=2)
    assert scrape.problem is None


def test_metrics_under_another_address():
    async def main():
        fetch = HttpFetch()
        async with FakeEngine({"/own": metrics(running=9)}) as other, FakeEngine() as engine:
            target = engine.target(metrics_url=f"http://127.0.0.1:{other.port}/own")
            scrape = await EngineProbe(target, fetch, timeout_s=5.0).scrape(clock=time.monotonic)
        await fetch.aclose()
        return scrape

    assert asyncio.run(main()).sample.running == 9


def test_sglang_without_metrics_is_read_from_its_loads():
    loads = Page(json.dumps({"loads": [{"num_running_reqs": 4, "token_usage": 0.5, "max_total_num_tokens": 900}]}))
    engine, scrape = scrape_once({LOADS: loads}, times=3)
    assert (scrape.kind, scrape.sample.running, scrape.sample.capacity_tokens) == ("sglang", 4, 900)
    assert engine.asked[LOADS] == 3
    assert engine.asked["/metrics"] == 1  # the page that works is asked first from then on


def test_an_older_sglang_tells_its_capacity_elsewhere():
    pages = {
        "/metrics": Page("sglang:num_running_reqs 1\n"),
        "/get_server_info": Page(json.dumps({"max_total_num_tokens": 777})),
    }
    engine, scrape = scrape_once(pages, times=3)
    assert scrape.sample.capacity_tokens == 777
    assert engine.asked["/get_server_info"] == 1


def test_capacity_that_nobody_tells_is_asked_for_once():
    engine, scrape = scrape_once({"/metrics": Page("sglang:num_running_reqs 1\n")}, times=3)
    assert scrape.sample.capacity_tokens is None
    assert (engine.asked["/server_info"], engine.asked["/get_server_info"]) == (1, 1)


def test_a_whole_scrape_of_sglang():
    engine, scrape = scrape_once({"/metrics": Page(SGLANG)}, kind="sglang")
    assert scrape.sample.capacity_tokens == 16384
    assert engine.asked == {"/metrics": 1}


class Told(list):
    def of(self, name):
        return [scrape for scrape in self if scrape.backend == name]


def with_scraper(body, *, timeout_s=5.0, interval_s=0.01, tell=None):
    async def main():
        fetch, told = HttpFetch(), Told()
        scraper = Scraper(fetch, tell or told.append, interval_s=interval_s, timeout_s=timeout_s, clock=time.monotonic)
        try:
            await body(scraper, told)
        finally:
            await scraper.aclose()
            await fetch.aclose()

    asyncio.run(main())


def test_a_bad_backend_does_not_keep_others_from_being_scraped():
    async def body(scraper, told):
        async with FakeEngine({"/metrics": Page(hang=True)}) as bad, FakeEngine({"/metrics": metrics()}) as good:
            scraper.add(bad.target("bad"))
            scraper.add(good.target("good"))
            await eventually(lambda: len(told.of("good")) >= 5)
            assert told.of("bad") == []

    with_scraper(body, timeout_s=60.0)


@pytest.mark.parametrize(
    "page",
    [Page(status=404), Page("<html>"), Page(status=401), Page("wrong 1\n"), Page(reset=True), Page(endless=True)],
    ids=["404", "html", "401", "wrong", "reset", "endless"],
)
def test_a_page_that_becomes_good_is_read_again(page):
    async def body(scraper, told):
        async with FakeEngine({"/metrics": page}) as engine:
            scraper.add(engine.target())
            await eventually(lambda: told and told[-1].problem)
            engine.pages["/metrics"] = metrics(running=2)
            await eventually(lambda: told[-1].sample is not None)
            engine.pages["/metrics"] = page
            await eventually(lambda: told[-1].problem)

    with_scraper(body)


def test_an_engine_that_is_down_at_first_and_after_a_while_again():
    async def body(scraper, told):
        engine = FakeEngine({"/metrics": metrics()})
        await engine.start()
        await engine.stop()
        scraper.add(engine.target())
        await eventually(
            lambda: told and told[-1].problem == "/metrics: cannot connect to the engine: connection refused"
        )
        await engine.start()
        await eventually(lambda: told[-1].sample is not None)
        await engine.stop()
        await eventually(lambda: told[-1].problem is not None)

    with_scraper(body)


def test_scrapes_of_one_backend_never_overlap():
    async def body(scraper, told):
        async with FakeEngine({"/metrics": Page(metrics().body, delay=0.02)}) as engine:
            scraper.add(engine.target())
            await eventually(lambda: len(told) >= 4)
            assert engine.overlap == 1

    with_scraper(body, interval_s=0.001)


def test_a_listener_that_fails_does_not_end_the_scraping(caplog):
    told = []

    def tell(scrape):
        told.append(scrape)
        raise ZeroDivisionError

    async def body(scraper, _):
        async with FakeEngine({"/metrics": metrics()}) as engine:
            scraper.add(engine.target())
            await eventually(lambda: len(told) >= 3)

    with_scraper(body, tell=tell)
    assert "scraping a failed" in caplog.text


def test_a_backend_without_metrics_is_left_alone_and_a_removed_one_too():
    async def body(scraper, told):
        async with FakeEngine({"/metrics": metrics()}) as engine, FakeEngine() as plain:
            scraper.add(plain.target("plain", kind="none"))
            scraper.add(engine.target())
            await eventually(lambda: len(told) >= 2)
            await scraper.remove(BackendId("a"))
            asked = engine.asked["/metrics"]
            await asyncio.sleep(0.05)
            assert engine.asked["/metrics"] == asked
            assert not plain.asked

    with_scraper(body)


def test_pauses_grow_with_failures_up_to_a_limit():
    assert [pause_after(n, interval_s=1.0) for n in (0, 1, 2, 3, 4, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert pause_after(7, interval_s=30.0) == 30.0
    assert pause_after(3, interval_s=1.0) == LONGEST_PAUSE_S


def test_each_rank_is_asked_for_by_its_header_and_read_from_its_own_series():
    series = 'vllm:num_requests_running{engine="%d",model_name="m"} %d\n'
    page = Page(series % (0, 3) + series % (1, 5))

    async def body():
        fetch = HttpFetch()
        async with FakeEngine({"/metrics": page}) as engine:
            for rank, running in ((0, 3), (1, 5)):
                probe = EngineProbe(engine.target(rank=rank), fetch, timeout_s=5.0)
                assert (await probe.scrape(clock=time.monotonic)).sample.running == running
                assert f"x-data-parallel-rank: {rank}" in engine.headers[-1]
        await fetch.aclose()

    asyncio.run(body())

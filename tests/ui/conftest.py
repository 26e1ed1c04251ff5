"""The live page in a real browser, before a real proxy in front of embedded engines."""

from __future__ import annotations

import atexit
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess

PATIENCE_MS = 20_000
HTTP = httpx.Client(verify=False, timeout=PATIENCE_MS / 1000)
"""One for all: to load certificates that nobody needs, for each question, takes longer than the answer."""
atexit.register(HTTP.close)
DESKTOP, PHONE, NARROW = (1280, 900), (390, 844), (320, 700)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    chromium = shutil.which("chromium")
    for item in items:
        if "tests/ui" in item.path.as_posix() and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.service)
            if not chromium:
                item.add_marker(
                    pytest.mark.skip(reason="chromium is not installed here; install it with: .ci/services")
                )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Seen:
    """What went on in a page that a reader does not see."""

    problems: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda line: self.problems.append(line.text) if line.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open the live page of a proxy. It asks nobody else, and nothing goes wrong but what ``may_fail`` matches."""
    opened = []

    def go(
        url: str, *, size: tuple[int, int] = DESKTOP, colours: str = "light", may_fail: str = "", live: bool = True
    ) -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=colours, reduced_motion="reduce"
        )
        page, seen = context.new_page(), Seen()
        page.set_default_timeout(PATIENCE_MS)
        seen.watch(page)
        opened.append((context, seen, url, may_fail))
        page.goto(f"{url}/concur/ui")
        if live:
            page.locator("#link[data-state=live]").wait_for()
        return page

    yield go
    for context, seen, url, may_fail in opened:
        context.close()
        assert not [line for line in seen.problems if not may_fail or not re.search(may_fail, line)]
        assert not [asked for asked in seen.asked if not asked.startswith((f"{url}/concur/", "data:"))]


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as server:
        yield server.url


@pytest.fixture(scope="module")
def engine_beside() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as server:
        yield server.url


@pytest.fixture(scope="module")
def running_proxy(engine: str) -> Iterator[ProxyProcess]:
    with ProxyProcess([engine], flags=["--window", "2"]) as running:
        yield running


@pytest.fixture
def proxy(running_proxy: ProxyProcess) -> ProxyProcess:
    """One with two places on one engine, and nobody there."""
    fresh = {"law": "fixed", "fixed": {"window": 2}, "window_min": 1, "window_max": None}
    api(running_proxy, "config", method="PATCH", json=fresh)
    for session in api(running_proxy, "sessions")["sessions"]:
        api(running_proxy, f"sessions/{quote(session['id'], safe='')}", method="DELETE")
    until(lambda: api(running_proxy, "sessions")["total"] == 0)
    return running_proxy


def api(proxy: ProxyProcess, path: str, **options: Any) -> Any:
    answer = HTTP.request(options.pop("method", "GET"), f"{proxy.url}/concur/{path}", **options)
    assert answer.status_code < 300, answer.text
    return answer.json()


def turn(proxy: ProxyProcess, session: str, *, tokens: int = 2, words: int = 1) -> httpx.Response:
    messages = [{"role": "user", "content": f"{session} " * words}]
    body = {"model": "alpha", "max_tokens": tokens, "ignore_eos": True, "messages": messages}
    return HTTP.post(f"{proxy.url}/v1/chat/completions", json=body, headers={"x-session-id": session})


@contextmanager
def running(proxy: ProxyProcess, session: str) -> Iterator[None]:
    """Keep a turn of the session running."""
    body = {"model": "alpha", "max_tokens": 20_000, "ignore_eos": True, "stream": True, "prompt": session}
    with HTTP.stream(
        "POST", f"{proxy.url}/v1/completions", json=body, headers={"x-session-id": session}, timeout=None
    ) as answer:
        assert answer.status_code == 200
        yield


@contextmanager
def waiting(proxy: ProxyProcess, *sessions: str) -> Iterator[None]:
    """Have turns wait, one of each session; at the end they have their answers, or were refused."""
    with ThreadPoolExecutor(len(sessions)) as others:
        for number, session in enumerate(sessions, 1):
            others.submit(turn, proxy, session)
            until(lambda number=number: api(proxy, "status")["held"] == number)
        yield


def until(true: Callable[[], Any]) -> Any:
    """Return the first true value."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not (value := true()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return value

"""The management API over ASGI, in front of a small port."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from concur_proxy.admin.api import LARGEST_BODY, install
from concur_proxy.admin.changes import Change
from concur_proxy.admin.past import Past
from concur_proxy.admin.reports import (
    BackendReport,
    HeldReport,
    Queue,
    SessionList,
    SessionReport,
    SessionState,
    SignalsReport,
    StatusReport,
)
from concur_proxy.config import Settings
from concur_proxy.core.listing import Query, Sort
from concur_proxy.history import History, Moment

LOCAL, REMOTE = ("127.0.0.1", 50_000), ("10.0.0.9", 50_000)

BACKEND = BackendReport(
    name="gpu:8000",
    url="http://gpu:8000",
    state="up",
    unit="sessions",
    window=math.inf,
    window_min=1,
    window_max=math.inf,
    running=2,
    idle=1,
    footprint_tokens=3000,
    signals=SignalsReport(age_s=math.inf, stale=True),
)


@dataclass
class Proxy:
    """Sessions by namespace and id; the settings in force."""

    known: set[tuple[str, str]] = field(default_factory=set)
    now: Settings = field(default_factory=Settings)
    changes: list[Change] = field(default_factory=list)
    in_force: list[tuple[float, float]] = field(default_factory=lambda: [(1, math.inf)])
    asked: list[Query] = field(default_factory=list)
    remembered: History = field(default_factory=History)
    pictures: int = 0
    """How many status reports were asked for; the proxy ends after ``lasts`` of them."""
    lasts: int = 1

    def status(self) -> StatusReport:
        self.pictures += 1
        return StatusReport(
            version="1",
            uptime_s=2,
            mode="enforce",
            law="aimd",
            held=0,
            sessions={SessionState.IDLE: len(self.known)},
            turns={"arrived": 3},
            backends=[BACKEND],
        )

    async def sessions(self, query) -> SessionList:
        self.asked.append(query)
        found = [
            SessionReport(id=name, state=SessionState.IDLE, footprint_tokens=1, turns=1)
            for _, name in sorted(self.known)
            if query.state in {None, SessionState.IDLE}
        ]
        return SessionList(total=len(found), sessions=found[query.offset : query.offset + query.limit])

    def queue(self, *, limit) -> Queue:
        turn = HeldReport(
            session="s3", state=SessionState.HELD, rule="header", waited_s=4, left_s=536, footprint_tokens=0
        )
        return Queue(total=2, turns=[turn, turn][:limit])

    def past(self) -> Past:
        return Past(self.remembered, now=100.0, epoch_s=1_000_100.0, present=frozenset({"new"}))

    def ending(self) -> bool:
        return self.pictures >= self.lasts

    def end_sessions(self, session_id, *, namespace) -> int:
        ended = {key for key in self.known if key[1] == session_id and namespace in {None, key[0]}}
        self.known -= ended
        return len(ended)

    def settings(self) -> Settings:
        return self.now

    def bounds(self) -> list[tuple[float, float]]:
        return self.in_force

    def change(self, change: Change) -> None:
        self.changes.append(change)
        self.now = change.settings


@pytest.fixture
def proxy():
    return Proxy({("of a", "s/1"), ("of b", "s/1"), ("of nobody", "s2")})


def namespace_of(headers) -> str:
    key = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key")
    return f"of {key or 'nobody'}"


def call(proxy: Proxy, method: str, path: str, *, token: str | None = None, client=LOCAL, **kwargs) -> httpx.Response:
    app = FastAPI(docs_url=None, openapi_url=None)
    install(
        app,
        proxy,
        token=SecretStr(token) if token else None,
        namespace_of=namespace_of,
    )

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=client)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            return await http.request(method, path, **kwargs)

    return asyncio.run(go())


def key(text: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {text}"}}


MANAGED = [
    ("GET", "/concur/status"),
    ("GET", "/concur/sessions"),
    ("GET", "/concur/queue"),
    ("GET", "/concur/history"),
    ("GET", "/concur/events"),
    ("GET", "/concur/config"),
    ("PATCH", "/concur/config"),
]


@pytest.mark.parametrize(("method", "path"), MANAGED)
def test_management_needs_the_token_where_one_is_set(proxy, method, path):
    body = {"json": {"max_held": 5}} if method == "PATCH" else {}
    answer = call(proxy, method, path, token="t", **body)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_admin_token"
    assert proxy.changes == []
    assert call(proxy, method, path, token="t", client=REMOTE, **key("t"), **body).status_code == 200


@pytest.mark.parametrize(("method", "path"), MANAGED)
def test_management_without_a_token_is_for_this_machine(proxy, method, path):
    body = {"json": {"max_held": 5}} if method == "PATCH" else {}
    answer = call(proxy, method, path, client=REMOTE, **body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert proxy.changes == []
    assert call(proxy, method, path, **body).status_code == 200


def test_status_has_null_for_unlimited_and_for_unknown(proxy):
    (backend,) = call(proxy, "GET", "/concur/status").json()["backends"]
    assert (backend["window"], backend["window_max"], backend["signals"]["age_s"]) == (None, None, None)


def test_sessions_can_be_limited_and_filtered(proxy):
    answer = call(proxy, "GET", "/concur/sessions?limit=1&state=idle").json()
    assert (answer["total"], len(answer["sessions"])) == (3, 1)
    assert call(proxy, "GET", "/concur/sessions?state=running").json()["total"] == 0


def test_a_page_of_sessions_is_asked_for_in_the_gates_own_words(proxy):
    query = "limit=2&offset=1&state=idle&backend=a&search=S&sort=footprint&reverse=true"
    assert len(call(proxy, "GET", f"/concur/sessions?{query}").json()["sessions"]) == 2
    assert proxy.asked == [Query("S", SessionState.IDLE, "a", Sort.FOOTPRINT, reverse=True, offset=1, limit=2)]


def test_the_queue_has_those_that_wait_and_how_many_there_are(proxy):
    answer = call(proxy, "GET", "/concur/queue?limit=1").json()
    assert answer["total"] == 2
    (turn,) = answer["turns"]
    assert (turn["session"], turn["waited_s"]) == ("s3", 4)


def test_the_history_has_null_for_unknown_and_for_unlimited(proxy):
    proxy.remembered.record({"a": Moment(active=1, window_sessions=math.inf)}, now=80.0)
    proxy.remembered.record({"a": Moment(active=3, queried_tokens_per_s=4, hit_tokens_per_s=3)}, now=90.0)
    answer = call(proxy, "GET", "/concur/history?span_s=100").json()
    assert (answer["backend"], answer["backends"], answer["now"]) == (None, ["a", "new"], 1_000_100.0)
    assert answer["at"] == [1_000_080.0, 1_000_090.0]
    assert answer["series"]["active"] == [1.0, 3.0]
    assert answer["series"]["window_sessions"] == [None, None]
    assert answer["series"]["hit_rate"] == [None, 0.75]
    assert call(proxy, "GET", "/concur/history?span_s=15&backend=a").json()["series"]["active"] == [3.0]
    assert call(proxy, "GET", "/concur/history?backend=new").json()["at"] == []
    assert call(proxy, "GET", "/concur/history?backend=b").json()["error"]["code"] == "backend_not_found"


def test_a_long_history_comes_in_as_many_points_as_asked_for(proxy):
    for number in range(1, 5001):
        proxy.remembered.record({"a": Moment(active=number)}, now=number * 0.02)
    whole = call(proxy, "GET", "/concur/history?span_s=86400&points=10000").json()
    assert len(whole["at"]) <= 10_000
    answer = call(proxy, "GET", "/concur/history?span_s=100&points=100").json()
    assert len(answer["at"]) == 100
    assert answer["at"] == sorted(answer["at"])
    assert answer["series"]["active"] == [25.5 + 50 * part for part in range(100)]


def test_events_tell_status_and_queue_until_the_proxy_ends(proxy):
    answer = call(proxy, "GET", "/concur/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    hello, event = answer.text.strip().split("\n\n")
    assert hello.startswith("retry: ")
    head, name, data = event.split("\n")
    assert (head, name) == ("id: 1", "event: state")
    told = json.loads(data.removeprefix("data: "))
    assert told["status"] == call(proxy, "GET", "/concur/status").json()
    assert told["queue"] == call(proxy, "GET", "/concur/queue?limit=50").json()


@pytest.mark.parametrize(
    "query",
    [
        "sessions?limit=0", "sessions?limit=x", "sessions?state=asleep", "sessions?sort=colour",
        "history?span_s=0", "history?span_s=90000", "history?points=0", "queue?limit=0",
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_in_the_shape_of_openai(proxy, query):
    answer = call(proxy, "GET", f"/concur/{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("?")[2].partition("=")[0]


def test_a_change_is_made_and_shown(proxy):
    for method in ("PATCH", "POST"):
        answer = call(proxy, method, "/concur/config", content=b'{"window_max": "50%", "max_wait_s": 60}')
        assert (answer.status_code, answer.json()["max_wait_s"]) == (200, 60)
    assert proxy.changes[0].shares == {"window_max": 0.5}


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_request"),
        (b"\xff", 400, "invalid_request"),
        (b'{"max_wait_s": -1}', 400, "invalid_setting"),
        (b" " * (LARGEST_BODY + 1), 413, "body_too_large"),
    ],
)
def test_a_wrong_change_is_refused(proxy, content, status, code):
    answer = call(proxy, "PATCH", "/concur/config", content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert proxy.changes == []


def test_a_session_is_ended_by_its_own_key_only(proxy):
    assert call(proxy, "DELETE", "/concur/sessions/s%2F1", token="t", client=REMOTE, **key("c")).status_code == 404
    answer = call(proxy, "DELETE", "/concur/sessions/s%2F1", token="t", client=REMOTE, **key("a"))
    assert answer.json() == {"ended": 1}
    assert proxy.known == {("of b", "s/1"), ("of nobody", "s2")}
    assert call(proxy, "DELETE", "/concur/sessions/s/1", headers={"x-api-key": "b"}).json() == {"ended": 1}


def test_managers_end_any_session(proxy):
    assert call(proxy, "DELETE", "/concur/sessions/s/1", token="t", client=REMOTE, **key("t")).json() == {"ended": 2}
    assert call(proxy, "DELETE", "/concur/sessions/s2").json() == {"ended": 1}


def test_a_local_caller_with_a_key_acts_for_that_key(proxy):
    assert call(proxy, "DELETE", "/concur/sessions/s/1", **key("a")).json() == {"ended": 1}


def test_a_caller_without_key_ends_sessions_opened_without_key(proxy):
    assert call(proxy, "DELETE", "/concur/sessions/s/1", client=REMOTE).status_code == 404
    assert call(proxy, "DELETE", "/concur/sessions/s2", client=REMOTE).json() == {"ended": 1}


def test_a_program_is_released(proxy):
    answer = call(proxy, "POST", "/programs/release", client=REMOTE, json={"program_id": "s2"})
    assert answer.json() == {"program_id": "s2", "released": True}
    again = call(proxy, "POST", "/programs/release", client=REMOTE, json={"program_id": "s2"})
    assert (again.status_code, again.json()["released"]) == (200, False)


@pytest.mark.parametrize("body", [{}, [], {"program_id": 3}, {"program_id": ""}])
def test_a_release_names_its_program(proxy, body):
    answer = call(proxy, "POST", "/programs/release", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "program_id")


def test_the_api_has_a_page_that_names_every_call(proxy):
    assert "/concur/openapi.json" in call(proxy, "GET", "/concur/docs").text
    paths = call(proxy, "GET", "/concur/openapi.json").json()["paths"]
    assert {(path, method) for path, methods in paths.items() for method in methods} == {
        ("/concur/status", "get"),
        ("/concur/sessions", "get"),
        ("/concur/queue", "get"),
        ("/concur/backends", "post"),
        ("/concur/backends/{name}", "delete"),
        ("/concur/backends/{name}/drain", "post"),
        ("/concur/backends/{name}/undrain", "post"),
        ("/concur/history", "get"),
        ("/concur/events", "get"),
        ("/concur/sessions/{session_id}", "delete"),
        ("/concur/config", "get"),
        ("/concur/config", "patch"),
        ("/concur/config", "post"),
        ("/programs/release", "post"),
    }

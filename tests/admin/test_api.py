"""The management API over ASGI, in front of a small port."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from concur_proxy.admin.api import LARGEST_BODY, install
from concur_proxy.admin.changes import Change
from concur_proxy.admin.reports import (
    BackendReport,
    SessionList,
    SessionReport,
    SessionState,
    SignalsReport,
    StatusReport,
)
from concur_proxy.config import Settings

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

    def status(self) -> StatusReport:
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

    def sessions(self, *, limit, state) -> SessionList:
        found = [
            SessionReport(id=name, state=SessionState.IDLE, footprint_tokens=1, turns=1)
            for _, name in sorted(self.known)
            if state in {None, SessionState.IDLE}
        ]
        return SessionList(total=len(found), sessions=found[:limit])

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


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "state=asleep"])
def test_a_wrong_query_is_refused_in_the_shape_of_openai(proxy, query):
    answer = call(proxy, "GET", f"/concur/sessions?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


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
        ("/concur/sessions/{session_id}", "delete"),
        ("/concur/config", "get"),
        ("/concur/config", "patch"),
        ("/concur/config", "post"),
        ("/programs/release", "post"),
    }

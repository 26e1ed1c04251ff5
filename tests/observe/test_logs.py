"""What log lines hold, and what they never do."""

from __future__ import annotations

import io
import json
import logging

import pytest

from concur_proxy.config import LogSettings
from concur_proxy.model import BackendId, SessionKey, Usage
from concur_proxy.observe.logs import AccessLog, configure
from concur_proxy.observe.turnlog import TurnLog

TURN = TurnLog(
    request_id="r-1",
    method="POST",
    path="/v1/chat/completions",
    kind="chat",
    status=200,
    outcome="completed",
    total_s=1.5,
    session=SessionKey("digest-of-key", "agent-17"),
    rule="header",
    backend=BackendId("gpu:8000"),
    queued_s=0.013,
    first_token_s=0.2104,
    usage=Usage(prompt_tokens=1200, completion_tokens=50, cached_tokens=1100),
)
BARE = TurnLog("r-2", "GET", "/nowhere", "other", 404, "unknown_path", 0.001)


def line(turn: TurnLog, **settings) -> str:
    stream = io.StringIO()
    AccessLog(LogSettings(**settings), stream=stream, clock=lambda: 1_700_000_000.25)(turn)
    return stream.getvalue()


@pytest.fixture
def root_logging():
    root, saved = logging.getLogger(), {}
    handlers, level = root.handlers[:], root.level
    for name in ("concur_proxy", "uvicorn", "uvicorn.access"):
        saved[name] = logging.getLogger(name).level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, value in saved.items():
        logging.getLogger(name).setLevel(value)


def test_a_text_line_has_the_whole_story():
    assert line(TURN) == (
        "2023-11-14T22:13:20.250Z INFO access: POST /v1/chat/completions 200 completed session=header:agent-17"
        " backend=gpu:8000 queued=13ms first_token=210ms total=1500ms prompt=1200 cached=1100 completion=50 id=r-1\n"
    )


def test_a_text_line_leaves_out_what_is_not_known():
    assert line(BARE) == "2023-11-14T22:13:20.250Z INFO access: GET /nowhere 404 unknown_path total=1ms id=r-2\n"


def test_what_was_not_http_keeps_the_fields_in_their_columns():
    assert " access: - - 400 client_error " in line(TurnLog("r", "", "", "other", 400, "client_error", 0.0))


def test_unknown_cached_tokens_are_not_zero():
    turn = TurnLog("r", "POST", "/", "chat", 200, "completed", 1.0, usage=Usage(5, 6))
    assert "prompt=5 cached=? completion=6" in line(turn)
    assert json.loads(line(turn, format="json"))["cached_tokens"] is None


def test_a_json_line_has_the_whole_story():
    assert json.loads(line(TURN, format="json")) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "access",
        "request_id": "r-1",
        "trace_id": None,
        "method": "POST",
        "path": "/v1/chat/completions",
        "kind": "chat",
        "status": 200,
        "outcome": "completed",
        "session": "agent-17",
        "rule": "header",
        "model": None,
        "backend": "gpu:8000",
        "queued_ms": 13.0,
        "first_token_ms": 210.4,
        "total_ms": 1500.0,
        "prompt_tokens": 1200,
        "cached_tokens": 1100,
        "completion_tokens": 50,
    }


def test_lines_of_a_traced_request_name_its_trace():
    told = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    turn = TurnLog("r", "POST", "/", "chat", 200, "completed", 1.0, traceparent=told, model="m")
    assert line(turn).endswith(" id=r trace=0af7651916cd43dd8448eb211c80319c\n")
    as_json = json.loads(line(turn, format="json"))
    assert (as_json["trace_id"], as_json["model"]) == ("0af7651916cd43dd8448eb211c80319c", "m")
    forged = TurnLog("r", "POST", "/", "chat", 200, "completed", 1.0, traceparent="x\nINFO fake")
    assert line(forged).endswith(" id=r\n")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_the_lines_of_what_went_well_is_written_and_all_others(share):
    stream = io.StringIO()
    log = AccessLog(LogSettings(sample=share), stream=stream)
    for _ in range(20):
        log(TURN)
        log(BARE)
    assert stream.getvalue().count(" completed ") == 20 * share
    assert stream.getvalue().count(" unknown_path ") == 20


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_digest_of_the_key_is_not_logged(form):
    assert "digest-of-key" not in line(TURN, format=form)


def test_what_a_client_wrote_cannot_look_like_another_line_or_field():
    turn = TurnLog(
        "r", "GET", "/a\nINFO fake", "other", 404, "x", 1.0, session=SessionKey("n", "a backend=other" + "x" * 90)
    )
    text = line(turn)
    assert text.count("\n") == 1
    assert ' session=anonymous:"a backend=otherx..." ' in text


@pytest.mark.parametrize("settings", [{"level": "warning"}, {"level": "error"}])
def test_access_lines_are_information(settings):
    assert line(TURN, **settings) == ""


def test_access_lines_can_be_switched_off():
    stream = io.StringIO()
    AccessLog(LogSettings(), enabled=False, stream=stream)(TURN)
    assert stream.getvalue() == ""


def test_a_closed_stream_loses_lines_only():
    stream = io.StringIO()
    log = AccessLog(LogSettings(), stream=stream)
    stream.close()
    log(TURN)


def test_lines_of_one_moment_are_written_together():
    stream, soon = io.StringIO(), []
    log = AccessLog(LogSettings(), stream=stream, defer=soon.append)
    log(TURN)
    log(TURN)
    assert (stream.getvalue(), len(soon)) == ("", 1)
    soon.pop()()
    assert stream.getvalue().count("\n") == 2
    log(TURN)
    assert len(soon) == 1


def test_other_lines_look_alike(root_logging):
    stream = io.StringIO()
    configure(LogSettings(), stream)
    logging.getLogger("concur_proxy.control").info("window %d\nfake", 7)
    logging.getLogger("httpx").info("too much")
    logging.getLogger("uvicorn.access").info("twice")
    (text,) = stream.getvalue().splitlines()
    assert text.endswith("Z INFO concur_proxy.control: window 7\\nfake")


def test_json_lines_carry_the_exception(root_logging):
    stream = io.StringIO()
    configure(LogSettings(format="json", level="error"), stream)
    logger = logging.getLogger("concur_proxy")
    logger.warning("not written")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logger.exception("it happened")
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "concur_proxy", "it happened")
    assert "RuntimeError: broken" in entry["exception"]

"""One line: what is sent for it, and when it is sent again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import orjson
import pytest

from concur_proxy.batch.records import Answer, Claim
from concur_proxy.batch.sending import LONGEST_PAUSE_S, MAX_BROKEN, BrokenOffError, Sender, retry_after_s
from concur_proxy.gateway.headers import Framing, HeaderList, ResponseHead
from concur_proxy.gateway.hints import COLD_HEADER, urgency
from tests.batch.stores import CHAT


def head(status: int, **values: str) -> ResponseHead:
    told = {name.replace("_", "-").encode(): value.encode() for name, value in values.items()}
    return ResponseHead(status, b"", [], told, Framing.LENGTH)


BROKEN_OFF = head(200)


class Way:
    """Answers in turn; None: no answer comes."""

    def __init__(self, answers: Sequence[ResponseHead | None]) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, HeaderList, bytes]] = []

    async def post(self, path: str, headers: HeaderList, body: bytes) -> tuple[ResponseHead, bytes]:
        self.sent.append((path, headers, body))
        answer = self.answers.pop(0)
        if answer is None:
            raise OSError("nobody is there")
        if answer is BROKEN_OFF:
            raise BrokenOffError("half of it")
        return answer, b'{"answer": %d}' % answer.status


def play(answers: Sequence[ResponseHead | None], **fields: object) -> tuple[Answer, Way, list[float]]:
    way, pauses = Way(answers), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m"}, **fields}
    sender = Sender("batch_1", CHAT, [(b"authorization", b"Bearer k")], ("X-Session-ID",), way, sleep)
    answer = asyncio.run(sender.play(Claim(7, "a", json.dumps(line).encode())))
    return answer, way, pauses


def names(headers: HeaderList) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


def test_a_line_is_its_owners_turn_and_batch_work() -> None:
    answer, way, _ = play([head(200)], headers={"X-Session-ID": "s"})
    ((path, headers, body),) = way.sent
    sent = names(headers)
    assert (path, orjson.loads(body)) == (CHAT, {"model": "m"})
    assert (sent["authorization"], sent["x-session-id"]) == ("Bearer k", "s")
    assert "x-session-final" not in sent
    assert urgency(0, sent) < 0
    told = orjson.loads(answer.text)
    assert sent["x-request-id"] == told["id"] == told["response"]["request_id"]
    assert (answer.failed, told["response"]["body"]) == (False, {"answer": 200})


def test_a_line_without_a_session_leaves_nothing_behind() -> None:
    _, way, _ = play([head(200)])
    assert names(way.sent[0][1])["x-session-final"] == "true"


@pytest.mark.parametrize("told", ["5", "-9"])
def test_batch_work_is_cold_whatever_its_priority(told: str) -> None:
    _, way, _ = play([head(200)], headers={"x-vllm-priority": told})
    assert urgency(9, names(way.sent[0][1])) < 0


def test_what_is_refused_is_sent_again_when_it_may_be() -> None:
    refused = [head(503, retry_after="7"), None, head(429, retry_after_ms="1500"), head(503)]
    answer, way, pauses = play([*refused * 5, head(200)])
    assert not answer.failed
    assert len(way.sent) == 21
    assert pauses[0] == 7
    assert all(0 < pause <= LONGEST_PAUSE_S for pause in pauses)
    assert "x-stainless-retry-count" not in names(way.sent[0][1])
    assert names(way.sent[3][1])["x-stainless-retry-count"] == "3"


def test_what_may_have_broken_an_engine_is_not_tried_for_ever() -> None:
    answer, way, _ = play([head(502), head(503), head(504), *[head(502)] * 9])
    assert answer.failed
    assert len(way.sent) == MAX_BROKEN + 1
    assert orjson.loads(answer.text)["response"]["status_code"] == 502


def test_what_breaks_off_is_not_tried_for_ever() -> None:
    answer, way, _ = play([None, BROKEN_OFF, head(503), BROKEN_OFF, head(502), head(200)])
    assert answer.failed
    assert (len(way.sent), orjson.loads(answer.text)["response"]["status_code"]) == (5, 502)
    answer, way, _ = play([BROKEN_OFF, BROKEN_OFF, BROKEN_OFF, head(200)])
    assert (len(way.sent), orjson.loads(answer.text)["error"]["code"]) == (3, "broken_off")


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500])
def test_other_errors_are_the_answer(status: int) -> None:
    answer, way, _ = play([head(status)])
    assert answer.failed
    assert len(way.sent) == 1
    assert orjson.loads(answer.text)["response"]["body"] == {"answer": status}


def test_a_line_that_is_none_any_more_is_an_error() -> None:
    answer, way, _ = play([], url="/v1/other")
    assert answer.failed
    assert not way.sent
    assert orjson.loads(answer.text)["error"]["code"] == "url_mismatch"


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 0),
        ({"retry_after": "3"}, 3),
        ({"retry_after": "3", "retry_after_ms": "2500"}, 2.5),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0),
        ({"retry_after": "-1"}, 0),
        ({"retry_after": "nan"}, 0),
        ({"retry_after": "inf"}, 0),
        ({"retry_after": "99999"}, LONGEST_PAUSE_S),
    ],
)
def test_times_to_come_back(values: dict[str, str], seconds: float) -> None:
    assert retry_after_s(head(503, **values)) == seconds


def test_the_cold_header_is_not_for_engines() -> None:
    assert COLD_HEADER.startswith("x-concur-")

"""Whole input files, cut anywhere."""

from __future__ import annotations

import itertools
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concur_proxy.batch.validation import BYTE_ORDER_MARK, MAX_ERRORS, Found, Reader, Rules
from tests.batch.stores import CHAT

RULES = Rules(CHAT, max_lines=20, max_line_bytes=1000, session_headers=("X-Session-ID",))


def line(number: int, session: str | None = None, **changes: object) -> bytes:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "ü"}],
        **({"session_id": session} if session else {}),
    }
    fields = {"custom_id": f"id {number}", "method": "POST", "url": CHAT, "body": body, **changes}
    return json.dumps(fields, ensure_ascii=False).encode()


def read(*pieces: bytes, rules: Rules = RULES) -> Found:
    reader = Reader(rules)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()


def codes(found: Found) -> list[tuple[object, object]]:
    return [(error["code"], error["line"]) for error in found.errors]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sessions=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=12),
    places=st.lists(st.integers(0, 3000), max_size=20),
    end=st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    last=st.booleans(),
    mark=st.sampled_from([b"", BYTE_ORDER_MARK]),
)
def test_lines_are_found_where_they_stand(
    sessions: list[str | None], places: list[int], end: bytes, last: bool, mark: bytes
) -> None:
    texts = [line(number, session) for number, session in enumerate(sessions)]
    whole = mark + end.join(texts) + (end if last else b"")
    cuts = sorted({min(place, len(whole)) for place in places} | {0, len(whole)})
    found = read(*(whole[a:b] for a, b in itertools.pairwise(cuts)))
    assert not found.errors
    assert [whole[one.first_byte : one.first_byte + one.length].strip() for one in found.lines] == texts
    assert [one.custom_id for one in found.lines] == [f"id {number}" for number in range(len(sessions))]
    assert found.model == "m"
    follows = {one.successor for one in found.lines} - {None}
    for number, (one, session) in enumerate(zip(found.lines, sessions, strict=True)):
        earlier = session is not None and session in sessions[:number]
        assert one.is_first != earlier
        assert (one.number in follows) == earlier
        if one.successor is not None:
            after = [other.number for other, its in zip(found.lines, sessions, strict=True) if its == session]
            assert one.successor == min(number for number in after if number > one.number)


def test_an_empty_file_is_refused() -> None:
    assert codes(read()) == codes(read(b"\n \n")) == [("empty_file", None)]


def test_each_error_has_its_line() -> None:
    found = read(b"\n".join([line(1), b"nonsense", b"", line(1), line(2, url="/v1/x")]))
    assert codes(found) == [("invalid_json_line", 2), ("duplicate_custom_id", 4), ("url_mismatch", 5)]


def test_too_many_lines_are_refused() -> None:
    assert codes(read(b"\n".join(line(number) for number in range(20)))) == []
    assert codes(read(b"\n".join(line(number) for number in range(30)))) == [("too_many_tasks", None)]


def test_a_line_that_is_too_long_ends_the_reading_wherever_its_end_is() -> None:
    long = line(1, custom_id="x" * 2000)
    assert codes(read(line(0) + b"\n" + long + b"\n" + line(2))) == [("request_too_large", 2)]
    assert codes(read(line(0) + b"\n" + long[:1500], long[1500:], b"\n" + line(2))) == [("request_too_large", 2)]


def test_errors_are_not_collected_for_ever() -> None:
    reader = Reader(RULES)
    reader.feed(b"nonsense\n" * (MAX_ERRORS + 50))
    assert reader.over
    assert len(reader.finish().errors) == MAX_ERRORS


def test_the_model_is_named_where_all_lines_have_the_same() -> None:
    other = line(2, body={"model": "n"})
    assert read(line(1) + b"\n" + other).model is None

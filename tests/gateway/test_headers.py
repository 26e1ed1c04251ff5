"""Header lines, without sockets."""

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway import headers
from concur_proxy.gateway.headers import (
    NAMES,
    Framing,
    Origin,
    ResponseHead,
    lowered,
    name_of,
    request_lines,
    response_lines,
)

ORIGIN = Origin(b"1.2.3.4", b"http", b"id", b"trace")
TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABC-_0123456789", min_size=1, max_size=12).map(str.encode)
VALUES = st.binary(max_size=20).map(lambda value: value.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b""))
HEADERS = st.lists(st.tuples(TOKENS, VALUES), max_size=12)


def ours(name):
    key = name.lower()
    known = {b"host", b"content-length", b"expect", b"trailer", b"http2-settings", *headers.HOP_BY_HOP}
    return key in known or key in headers.FORWARDED or key.startswith(b"x-concur-")


@given(HEADERS)
def test_every_other_request_header_passes_in_order_and_byte_for_byte(given_headers):
    kept = [b"%b: %b\r\n" % pair for pair in given_headers if not ours(pair[0])]
    text = b"".join(request_lines(given_headers, lowered(given_headers), ORIGIN, identity_only=False))
    assert text.startswith(b"".join(kept) + b"x-forwarded-for: ")


@given(HEADERS)
def test_every_other_response_header_passes_in_order_and_byte_for_byte(given_headers):
    dropped = headers.HOP_BY_HOP
    kept = [
        b"%b: %b\r\n" % pair
        for pair in given_headers
        if pair[0].lower() not in dropped and not pair[0].lower().startswith(b"x-concur-")
    ]
    values = {name.lower(): value for name, value in given_headers}
    if b"connection" in values:
        return
    head = ResponseHead(200, b"OK", given_headers, values, Framing.LENGTH)
    text = b"".join(response_lines(head, with_length=True))
    assert text == b"HTTP/1.1 200 OK\r\n" + b"".join(kept)


def test_names_that_clients_invent_are_not_remembered_for_ever():
    for number in range(2 * headers.MAX_SPELLINGS):
        assert name_of(b"X-%d" % number).lower == b"x-%d" % number
    assert len(NAMES) <= headers.MAX_SPELLINGS


def test_what_connection_names_stays_on_this_hop():
    given_headers = [(b"Connection", b"close, X-A"), (b"x-a", b"1"), (b"X-B", b"2")]
    text = b"".join(request_lines(given_headers, lowered(given_headers), ORIGIN, identity_only=False))
    assert b"x-a" not in text
    assert b"X-B: 2\r\n" in text


def test_chunks():
    assert headers.chunk(b"") == b""
    assert headers.chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert headers.last_chunk([(b"a", b"b")]) == b"0\r\na: b\r\n\r\n"

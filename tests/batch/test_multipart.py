"""Forms as clients send them, cut anywhere; what is no form."""

from __future__ import annotations

import itertools

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concur_proxy.batch.multipart import MAX_HEAD_BYTES, MAX_PARTS, FormReader, Part
from concur_proxy.errors import RequestError

TYPE = "multipart/form-data; boundary=xyz"


def read(content_type: str, *pieces: bytes) -> tuple[list[tuple[Part, bytes]], bool]:
    form, parts = FormReader(content_type), []
    for piece in pieces:
        for event in form.feed(piece):
            if isinstance(event, Part):
                parts.append([event, b""])
            else:
                assert event
                parts[-1][1] += event
    return [(part, data) for part, data in parts], form.complete


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    file=st.binary(max_size=300)
    | st.lists(st.sampled_from([b"\r\n--", b"\r\n", b"--", b"x", b"\r", b"\n"])).map(b"".join),
    field=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    places=st.lists(st.integers(0, 900), max_size=30),
)
def test_a_form_reads_the_same_wherever_it_is_cut(file: bytes, field: str, places: list[int]) -> None:
    request = httpx.Request("POST", "http://x", data={"purpose": field}, files={"file": ('ü"n.jsonl', file)})
    kind, body = request.headers["content-type"], request.read()
    parts, complete = read(kind, *cut(body, places))
    assert complete
    assert [(part.name, data) for part, data in parts] == [("purpose", field.encode()), ("file", file)]
    assert parts[0][0].filename is None
    assert parts[1][0].filename is not None


def test_names_of_files_as_clients_write_them() -> None:
    for disposition, name in (
        (b'form-data; name="file"; filename="a b.jsonl"', "a b.jsonl"),
        (b"form-data; name=file; filename*=UTF-8''%C3%BC.jsonl", "ü.jsonl"),
        ('form-data; name="file"; filename="ü.jsonl"'.encode(), "ü.jsonl"),
    ):
        parts, complete = read(TYPE, b"--xyz\r\nContent-Disposition: " + disposition + b"\r\n\r\ndata\r\n--xyz--\r\n")
        assert complete
        assert parts == [(Part("file", name), b"data")]


@pytest.mark.parametrize(
    "told", [b"filename*=utf-7''+2AA-", b"filename*=raw_unicode_escape''%5cud800", b"filename*=idna''xn--a"]
)
def test_a_name_in_a_strange_charset_is_a_text_all_the_same(told: bytes) -> None:
    head = b'--xyz\r\ncontent-disposition: form-data; name="file"; ' + told
    (part, data), *_ = read(TYPE, head + b"\r\n\r\nx\r\n--xyz--")[0]
    assert data == b"x"
    assert part.filename is not None
    part.filename.encode()


def test_a_long_preamble_is_not_kept() -> None:
    """It would be looked through again with each piece that comes."""
    form = FormReader(TYPE)
    for _ in range(100):
        assert form.feed(b"-" * 1000) == []
    assert len(form._buffer) < 100
    assert form.feed(b'\r\n--xyz\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n--xyz--') == [
        Part("a", None),
        b"b",
    ]


@pytest.mark.parametrize("hostile", ["filename*" + "9" * 5000 + "=x", "filename*=a\0b''zz", "filename*=undefined''zz"])
def test_parameters_that_cannot_be_read_break_nothing(hostile: str) -> None:
    head = f"--xyz\r\ncontent-disposition: form-data; name=a; {hostile}\r\n\r\n"
    try:
        parts, _ = read(TYPE, head.encode())
    except RequestError:
        return
    assert parts == [(Part("a", ""), b"")]


def test_a_form_has_a_bounded_number_of_parts() -> None:
    part = b'--xyz\r\ncontent-disposition: form-data; name="%d"\r\n\r\n\r\n'
    parts, _ = read(TYPE, *(part % number for number in range(MAX_PARTS)))
    assert len(parts) == MAX_PARTS
    with pytest.raises(RequestError):
        read(TYPE, *(part % number for number in range(MAX_PARTS + 1)))


def test_a_preamble_and_an_epilogue_are_no_parts() -> None:
    form = b'hello\r\n--xyz  \r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--xyz--\r\nbye\r\n--xyz\r\n'
    assert read(TYPE, form) == ([(Part("a", None), b"1")], True)


def test_a_form_without_parts_is_complete() -> None:
    assert read(TYPE, b"--xyz--") == ([], True)


def test_what_ends_before_its_last_boundary_is_not_complete() -> None:
    assert not read(TYPE, b'--xyz\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--xyz')[1]


@pytest.mark.parametrize(
    "kind",
    ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=x"],
)
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(RequestError):
        FormReader(kind)


@pytest.mark.parametrize(
    "body",
    [
        b"--xyz and more\r\n",
        b"--xyz\r\ncontent-type: text/plain\r\n\r\n1\r\n--xyz--",
        b"--xyz\r\n\r\n1\r\n--xyz--",
        b"--xyz\r\nx: " + b"y" * (MAX_HEAD_BYTES + 10),
        b"--xyz" + b" " * (MAX_HEAD_BYTES + 10),
    ],
)
def test_broken_forms_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        read(TYPE, body)


def test_a_large_file_leaves_little_behind() -> None:
    form = FormReader(TYPE)
    form.feed(b'--xyz\r\ncontent-disposition: form-data; name="file"\r\n\r\n')
    for _ in range(100):
        form.feed(b"\r\n--xy" * 1000)
        assert len(form._buffer) < 100

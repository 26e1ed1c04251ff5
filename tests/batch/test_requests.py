"""Parameters of the API, and what is said where they cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from concur_proxy.batch import requests
from concur_proxy.batch.files import Page
from concur_proxy.errors import RequestError

USUAL = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}


def create(**changes: Any):
    body = json.dumps({name: value for name, value in {**USUAL, **changes}.items() if value is not ...})
    return requests.new_batch(body.encode(), owner="o", identity={"headers": {"authorization": "k"}})


def test_a_usual_batch() -> None:
    new = create(metadata={"a": "b"}, output_expires_after={"anchor": "created_at", "seconds": 3600})
    assert (new.owner, new.endpoint, new.window_s, new.output_expires_s) == ("o", USUAL["endpoint"], 86_400, 3600)
    assert json.loads(new.metadata or "") == {"a": "b"}
    assert json.loads(new.identity) == {"headers": {"authorization": "k"}}


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86_400), ("1s", 1), ("90m", 5400), ("7d", 7 * 86_400)])
def test_windows(text: str, seconds: int) -> None:
    assert create(completion_window=text).window_s == seconds


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"completion_window": "24"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"completion_window": 24}, "completion_window"),
        ({"completion_window": ...}, "completion_window"),
        ({"input_file_id": ...}, "input_file_id"),
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a" * 65: "x"}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": [1]}, "metadata"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 10}}, "output_expires_after.seconds"),
        ({"output_expires_after": 3600}, "output_expires_after.anchor"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": "00007200" + "9" * 30}},
            "output_expires_after.seconds",
        ),
    ],
)
def test_errors_name_the_parameter(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        create(**changes)
    assert caught.value.param == param


def test_deep_values_are_refused() -> None:
    expires = b'{"anchor": "created_at", "seconds": %b%b}' % (b"[" * 1000, b"]" * 1000)
    body = json.dumps({**USUAL, "output_expires_after": "here"}).encode().replace(b'"here"', expires)
    with pytest.raises(RequestError):
        requests.new_batch(body, owner="o", identity={})


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        requests.new_batch(body, owner="o", identity={})


def test_terms_of_uploads() -> None:
    assert requests.upload_terms({"purpose": "batch"}) == ("batch", None)
    kept = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    assert requests.upload_terms(kept) == ("batch", 3600)
    for wrong in ({}, {"purpose": "vision"}, {"purpose": "batch", "expires_after[seconds]": "3600"}):
        with pytest.raises(RequestError):
            requests.upload_terms(wrong)


def test_pages() -> None:
    assert requests.page({}, default=20, most=100) == Page(20)
    wanted = {"limit": "3", "after": "x", "order": "asc"}
    assert requests.page(wanted, default=20, most=100) == Page(3, "x", ascending=True)
    for wrong in (
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "-1"},
        {"limit": "x"},
        {"limit": "²"},
        {"order": "up"},
        {"limit": "0" * 8 + "199999"},
    ):
        with pytest.raises(RequestError):
            requests.page(wrong, default=20, most=100)

"""Asking a proxy from the command line, against a small server."""

from __future__ import annotations

import pytest

from concur_proxy.admin.client import AnsweredError, ProxyClient
from concur_proxy.errors import ConcurError
from tests.admin.test_view import STATUS, serving


def test_a_status_comes_as_it_was_sent():
    with serving(200, STATUS.model_dump_json()) as (url, seen):
        assert ProxyClient(f"{url}/", "secret").status() == STATUS
        assert ProxyClient(url.removeprefix("http://")).status() == STATUS
        assert ProxyClient(f"{url}/v1").status() == STATUS
    assert seen == [("/concur/status", "Bearer secret"), ("/concur/status", None), ("/concur/status", None)]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, '{"error": {"message": "needs the token"}}', "answered 401: needs the token"),
        (404, "not found", "answered 404: this is not a concur-proxy"),
        (404, '{"error": {"message": "There is nothing here"}}', "answered 404: this is not a concur-proxy"),
        (500, "[]", "answered 500: Internal Server Error"),
        (200, "<html>", "is not a concur-proxy of this version"),
        (200, "{}", "is not a concur-proxy of this version"),
    ],
)
def test_anything_else_is_said_in_plain_words(status, body, said):
    with serving(status, body) as (url, _), pytest.raises(ConcurError, match=said) as caught:
        ProxyClient(url).status()
    if status != 200:
        assert isinstance(caught.value, AnsweredError)
        assert caught.value.answer_status == status


def test_nobody_there_is_said_too():
    with serving(200, "") as (url, _):
        pass
    with pytest.raises(ConcurError, match=r"no answer from .*Is the proxy running\?"):
        ProxyClient(url).status()


def test_what_is_asked_for_goes_into_the_query():
    with serving(404, "") as (url, seen):
        client = ProxyClient(url)
        for ask in (
            lambda: client.queue(limit=3),
            lambda: client.sessions(limit=4),
            lambda: client.history(backend="a b", span_s=60.0, points=5),
            lambda: client.history(backend=None, span_s=60.0, points=5),
        ):
            with pytest.raises(AnsweredError):
                ask()
    assert [path for path, _ in seen] == [
        "/concur/queue?limit=3",
        "/concur/sessions?limit=4",
        "/concur/history?span_s=60.0&points=5&backend=a+b",
        "/concur/history?span_s=60.0&points=5",
    ]

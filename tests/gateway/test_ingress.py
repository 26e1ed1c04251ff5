"""What is read off a request."""

import pytest

from concur_proxy.core.identity import Identity
from concur_proxy.core.retries import digest_of
from concur_proxy.gateway import ingress
from concur_proxy.gateway.body import NOTHING, facts
from concur_proxy.model import PoolId, SessionKey


def test_bodies_are_read_by_what_they_say_they_are():
    form = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--B--\r\n'
    assert ingress.body_facts(b'{"model":"m"}', {}).model == "m"
    assert ingress.body_facts(form, {"content-type": "Multipart/form-data; boundary=B"}).model == "m"
    assert ingress.body_facts(b'{"model":"m"}', {"content-encoding": "gzip"}) is NOTHING
    assert ingress.body_facts(b"", {}) is NOTHING


def test_ids_are_made_where_none_is_brought():
    made = [ingress.origin({}, b"", b"http") for _ in range(3)]
    assert len({one.request_id for one in made}) == 3
    assert {one.traceparent for one in made} == {b""}


@pytest.mark.parametrize("told", ["", "x" * 200, "a\tb", "caf\u00e9"])
def test_request_ids_that_cannot_be_used_are_replaced(told):
    assert len(ingress.origin({"x-request-id": told}, b"", b"http").request_id) == 32


def test_a_request_id_that_is_brought_is_used():
    assert ingress.origin({"x-request-id": "mine"}, b"", b"http").request_id == b"mine"


def test_the_facts_of_a_turn():
    body = b'{"max_tokens":9,"n":2,"messages":[{"role":"system","content":"s"}]}'
    who = Identity(SessionKey("n", "s"), SessionKey("n", "p"), "operator", final=True)
    headers = {"x-stainless-read-timeout": "600", "x-stainless-retry-count": "1"}
    turn = ingress.turn_facts(PoolId("p"), who, body, facts(body), headers)
    assert (turn.session, turn.parent, turn.rule, turn.final) == (who.session, who.parent, "operator", True)
    assert (turn.body_bytes, turn.max_output_tokens, turn.choices) == (len(body), 9, 2)
    assert (turn.read_timeout_s, turn.is_retry) == (600.0, True)
    assert digest_of(turn) == digest_of(ingress.turn_facts(PoolId("p"), who, bytes(bytearray(body)), NOTHING, {})) != 0
    assert turn.prefix_key is not None


@pytest.mark.parametrize(("beat_s", "counts"), [(None, True), (5.0, True), (60.0, True), (59.0, False)])
def test_a_client_that_hears_of_us_in_time_does_not_lose_patience(beat_s, counts):
    headers = {"x-stainless-read-timeout": "60" if beat_s != 5.0 else "5"}
    turn = ingress.turn_facts(PoolId("p"), Identity(), b"", NOTHING, headers, beat_s=beat_s)
    assert (turn.read_timeout_s is not None) is counts


@pytest.mark.parametrize("told", ["", "abc", "nan", "inf", "-1", "0"])
def test_read_timeouts_that_make_no_sense_tell_nothing(told):
    turn = ingress.turn_facts(PoolId("p"), Identity(), b"", NOTHING, {"x-stainless-read-timeout": told})
    assert turn.read_timeout_s is None
    assert not turn.is_retry

"""Priorities, deadlines and tenants, from whichever place a client puts them in."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.config import GateSettings
from concur_proxy.core.identity import Identity
from concur_proxy.core.order.registry import ORDERS
from concur_proxy.gateway import body, hints, ingress
from concur_proxy.model import PoolId


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (0, None)),
        ({"priority": 3}, (-3, None)),  # vLLM: lower goes first
        ({"priority": -3}, (3, None)),
        ({"nvext": {"agent_hints": {"priority": 3}}}, (3, None)),  # Dynamo: higher goes first
        ({"nvext": {"agent_hints": {"priority": 3}}, "priority": 7}, (3, None)),
        ({"deadline_seconds": 2.5}, (0, 2.5)),
        ({"nvext": {"agent_hints": {"deadline_seconds": 4}}}, (0, 4.0)),
        ({"priority": True}, (0, None)),
        ({"priority": "1"}, (0, None)),
        ({"priority": 1 << 40}, (0, None)),
        ({"deadline_seconds": -1}, (0, None)),
        ({"deadline_seconds": True}, (0, None)),
        ({"nvext": 1}, (0, None)),
        ({"nvext": {"agent_hints": [1]}}, (0, None)),
    ],
)
def test_bodies_tell_urgency_and_deadline(fields, expected):
    assert hints.of_body(fields) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 5),
        ({"x-vllm-priority": "2"}, -2),
        ({"x-smg-priority": "2"}, 2),
        ({"x-smg-priority": "much"}, 0),
        ({"x-vllm-priority": "-" + "9" * 400}, 0),
    ],
)
def test_headers_come_before_the_body(headers, expected):
    assert hints.urgency(5, headers) == expected


def test_a_tenant_is_the_key_or_whom_the_operators_header_names():
    headers = {"x-team": " red "}
    assert hints.tenant("digest", None, headers) == "digest"
    assert hints.tenant("digest", "x-team", headers) == "red"
    assert hints.tenant("digest", "x-other", headers) == "digest"
    assert hints.tenant("digest", "x-team", {"x-team": "r" * 257}) == "digest"


def test_the_facts_of_a_turn_have_them():
    raw = b'{"priority": -2, "deadline_seconds": 9, "messages": []}'
    turn = ingress.turn_facts(PoolId("p"), Identity(), raw, body.facts(raw), {}, "red")
    assert (turn.tenant, turn.urgency, turn.deadline_s) == ("red", 2, 9.0)


def test_the_settings_name_every_order():
    assert set(get_args(GateSettings.model_fields["order"].annotation)) == set(ORDERS)


FIELDS = st.dictionaries(
    st.text(max_size=8) | st.just("priority"), st.none() | st.integers(-9, 9) | st.text(), max_size=4
)


@given(FIELDS, st.integers(-9, 9), st.sampled_from(["", " ", "\n"]))
def test_a_priority_is_added_and_nothing_else_changes(fields, priority, space):
    body = (space + json.dumps(fields)).encode()
    assert json.loads(hints.with_priority(body, priority)) == {**fields, "priority": priority}


@pytest.mark.parametrize("body", [b"[]", b'"priority"', b'["priority"]', b'[{"a":1}]', b"", b"plain", b'{"priority"'])
def test_what_is_no_object_gets_no_priority(body):
    assert hints.with_priority(body, 3) == body

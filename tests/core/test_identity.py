from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.identity import (
    ANONYMOUS,
    BODY_RULES,
    HEADER_RULES,
    NO_KEY,
    RULES,
    Identity,
    identify,
    namespace_of,
)
from concur_proxy.model import SessionKey

OPERATOR_HEADERS = ("X-Session-ID",)


def who(headers=None, body=None, *, namespace="n", operator_headers=OPERATOR_HEADERS):
    return identify(headers or {}, body, namespace=namespace, operator_headers=operator_headers)


def named(headers=None, body=None, **options):
    found = who(headers, body, **options)
    return found.rule, found.session and found.session.id, found.parent and found.parent.id


CLAUDE = {"x-claude-code-session-id": "s"}

BY_HEADER = [
    ({"x-session-id": "a"}, ("operator", "a", None)),
    ({"x-session-id": "a", "x-parent-session-id": "b"}, ("operator", "a", "b")),
    (CLAUDE, ("claude-code", "s", None)),
    (CLAUDE | {"x-claude-code-agent-id": "x"}, ("claude-code", "s/x", "s")),
    (
        CLAUDE | {"x-claude-code-agent-id": "x", "x-claude-code-parent-agent-id": "y"},
        ("claude-code", "s/x", "s/y"),
    ),
    (CLAUDE | {"x-claude-code-parent-agent-id": "y"}, ("claude-code", "s", None)),
    ({"session-id": "s"}, ("codex", "s", None)),
    ({"session_id": "s"}, ("codex", "s", None)),
    ({"session-id": "s", "thread-id": "s"}, ("codex", "s", None)),
    ({"session-id": "s", "thread-id": "t"}, ("codex", "s/t", None)),
    ({"session-id": "s", "thread-id": "t", "x-codex-parent-thread-id": "s"}, ("codex", "s/t", "s")),
    ({"session-id": "s", "thread-id": "u", "x-codex-parent-thread-id": "t"}, ("codex", "s/u", "s/t")),
    ({"session_id": "s", "x-codex-parent-thread-id": "p"}, ("codex", "s", "p")),
    ({"x-session-affinity": "a"}, ("opencode", "a", None)),
    ({"x-session-affinity": "a", "x-parent-session-id": "b"}, ("opencode", "a", "b")),
    ({"x-dynamo-session-id": "d"}, ("dynamo", "d", None)),
    ({"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "p"}, ("dynamo", "d", "p")),
    ({"x-litellm-session-id": "l"}, ("litellm", "l", None)),
    ({"x-acme-session-id": "abcd-1234"}, ("vendor", "abcd-1234", None)),
]

BY_BODY = [
    ({"session_id": "a"}, ("body.session_id", "a")),
    ({"session_id": 12}, ("body.session_id", "12")),
    ({"vllm_xargs": {"session_id": "a"}}, ("body.vllm_xargs.session_id", "a")),
    (
        {"vllm_xargs": {"agentic_context": {"program_id": "a"}}},
        ("body.vllm_xargs.agentic_context.program_id", "a"),
    ),
    ({"agent_hint": {"session_id": "a"}}, ("body.agent_hint.session_id", "a")),
    ({"program_id": "a"}, ("body.program_id", "a")),
    ({"extra_body": {"program_id": "a"}}, ("body.program_id", "a")),
    ({"session_params": {"id": "a"}}, ("body.session_params.id", "a")),
    ({"conversation": "conv_1"}, ("body.conversation", "conv_1")),
    ({"conversation": {"id": "conv_1"}}, ("body.conversation", "conv_1")),
    ({"metadata": {"user_id": "user_1_account__session_5d0c"}}, ("body.metadata.user_id", "5d0c")),
]


@pytest.mark.parametrize(("headers", "expected"), BY_HEADER)
def test_headers_that_name_a_session(headers, expected):
    assert named(headers) == expected


@pytest.mark.parametrize(("body", "expected"), BY_BODY)
def test_body_fields_that_name_a_session(body, expected):
    assert named(body=body)[:2] == expected


def test_opencode_is_known_where_the_operator_has_other_headers():
    headers = {"x-session-id": "a", "x-parent-session-id": "b"}
    assert named(headers, operator_headers=("X-Team",)) == ("opencode", "a", "b")


def test_every_rule_of_the_tables_has_a_row_here():
    rows = {expected[0] for _, expected in BY_HEADER} | {expected[0] for _, expected in BY_BODY}
    assert rows | {ANONYMOUS} == set(RULES)


@pytest.mark.parametrize(
    "name",
    [
        *("x-request-id", "x-correlation-id", "traceparent", "x-trace-id", "thread-id"),
        *("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"),
        *("x-parent-session-id", "x-dynamo-parent-session-id", "x-claude-code-agent-id", "x-acme-session-id-hash"),
        *("authorization", "x-client-request-id", "cookie", "x-session-final"),
    ],
)
def test_headers_that_never_name_a_session(name):
    assert named({name: "abcd-1234"}) == (ANONYMOUS, None, None)


@pytest.mark.parametrize(
    "body",
    [
        {"user": "abcd-1234"},
        {"metadata": {"user_id": "user_abcd"}},
        {"metadata": {"user_id": "user_abcd_session_"}},
        {"metadata": "user_session_abcd"},
        {"prompt_cache_key": "abcd-1234"},
        {"previous_response_id": "resp_1"},
        {"id": "abcd-1234"},
        {"session_id": None, "conversation": {}, "vllm_xargs": []},
        {"session_id": True},
        {"session_id": {"id": "a"}},
        {"session_id": 1 << 64},
        {"session_params": "a"},
    ],
)
def test_bodies_that_name_no_session(body):
    assert named(body=body) == (ANONYMOUS, None, None)


@pytest.mark.parametrize("value", ["short", "with space", "ünïcödés", "under_score!"])
def test_an_unknown_vendor_needs_a_value_that_looks_like_an_id(value):
    assert named({"x-acme-session-id": value}) == (ANONYMOUS, None, None)


def test_of_several_vendors_the_choice_does_not_depend_on_the_order_of_headers():
    headers = [("x-b-session-id", "bbbbbbbb"), ("x-a-session-id", "aaaaaaaa")]
    assert named(dict(headers)) == named(dict(reversed(headers))) == ("vendor", "aaaaaaaa", None)


def test_unlabelled_turns_have_no_session():
    assert who({"host": "x"}, {"model": "m", "messages": []}) == Identity()


def test_the_operator_may_name_several_headers_in_any_case_and_the_first_present_wins():
    headers = {"x-team": "t", "x-run": "r"}
    assert named(headers, operator_headers=("X-None", "X-Run", "X-Team")) == ("operator", "r", None)
    assert named(headers, operator_headers=()) == (ANONYMOUS, None, None)


@pytest.mark.parametrize("value", [" a", "a ", "\ta ", "a"])
def test_space_around_an_id_does_not_count(value):
    assert named({"x-session-id": value}) == ("operator", "a", None)


@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_an_empty_id_is_none_and_not_a_fault(value):
    found = who({"x-session-id": value, "x-claude-code-session-id": "s", "x-claude-code-agent-id": value})
    assert (found.rule, found.session, found.rejected) == ("claude-code", SessionKey("n", "s"), False)


@pytest.mark.parametrize("value", ["a" * 257, "é" * 129, "a\x00b", "a\nb", "a\x7f", "\ud800", "a\u200b"])
@pytest.mark.parametrize("where", ["header", "body"])
def test_an_id_that_cannot_be_used_is_passed_over_and_told(where, value):
    if where == "header":
        found = who({"x-session-id": value}, {"session_id": "next"})
    else:
        found = who({}, {"session_id": value, "program_id": "next"})
    assert found.rejected
    assert found.session == SessionKey("n", "next")


@pytest.mark.parametrize("value", ["a" * 256, "é" * 128, "two words", "a/b:c", "日本"])
def test_an_id_may_have_256_printable_bytes(value):
    found = who({"x-session-id": value})
    assert found.session == SessionKey("n", value)
    assert not found.rejected


def test_an_agent_whose_own_id_cannot_be_used_is_not_its_parent():
    found = who(CLAUDE | {"x-claude-code-agent-id": "x" * 300})
    assert (found.rule, found.session, found.rejected) == (ANONYMOUS, None, True)


def test_a_parent_that_cannot_be_used_leaves_the_session():
    found = who({"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "\x01"})
    assert (found.session, found.parent, found.rejected) == (SessionKey("n", "d"), None, True)


def test_nobody_is_its_own_parent():
    assert who({"x-session-id": "a", "x-parent-session-id": "a"}).parent is None


@pytest.mark.parametrize("name", ["x-session-final", "x-dynamo-session-final"])
def test_a_header_ends_a_session(name):
    for value, expected in [("true", True), (" True ", True), ("1", True), ("false", False), ("0", False), ("", False)]:
        assert who({"x-session-id": "a", name: value}).final is expected
    assert not who({"x-session-id": "a"}).final


def test_the_body_may_be_any_mapping_or_missing():
    assert who({}, MappingProxyType({"session_id": "a"})).session == SessionKey("n", "a")
    assert who({}, None) == Identity()


FIELDS = st.sampled_from(sorted({name for _, path in BODY_RULES for name in path}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | FIELDS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    sorted(
        {name for rule in HEADER_RULES for name in (rule.session, rule.agent, rule.parent) if name}
        | {"x-acme-session-id", "x-session-final", "x-dynamo-session-final", "x-request-id"}
    )
)
HEADERS = st.dictionaries(NAMES | st.text(), st.text() | st.just("abcd-1234"), max_size=8)


@given(HEADERS, st.none() | st.dictionaries(FIELDS | st.text(), JSON, max_size=6))
def test_nothing_that_can_be_sent_raises_and_every_id_is_usable(headers, body):
    found = who(headers, body)
    assert found.rule in RULES
    assert (found.session is None) == (found.rule == ANONYMOUS)
    for key in (found.session, found.parent):
        if key is not None:
            assert key.namespace == "n"
            assert key.id.isprintable()
            assert 0 < len(key.id.encode()) <= 2 * 256 + 1


RANKED = [
    ({"x-session-id": "id-of-operator"}, {}),
    ({"x-claude-code-session-id": "id-of-claude"}, {}),
    ({"session-id": "id-of-codex"}, {}),
    ({"session_id": "id-of-codex-too"}, {}),
    ({"x-session-affinity": "id-of-opencode"}, {}),
    ({"x-dynamo-session-id": "id-of-dynamo"}, {}),
    ({"x-litellm-session-id": "id-of-litellm"}, {}),
    ({"x-acme-session-id": "id-of-vendor"}, {}),
    *(({}, body) for body, _ in BY_BODY if body not in ({"session_id": 12}, {"conversation": {"id": "conv_1"}})),
]


@given(st.sets(st.sampled_from(range(len(RANKED))), min_size=1))
def test_the_first_rule_that_applies_wins(chosen):
    headers, body = {}, {}
    for index in sorted(chosen, reverse=True):
        headers |= RANKED[index][0]
        for field, value in RANKED[index][1].items():
            body[field] = body.get(field, {}) | value if isinstance(value, dict) else value
    first_headers, first_body = RANKED[min(chosen)]
    assert named(headers, body) == named(first_headers, first_body)


@given(HEADERS, st.text(min_size=1), st.text(min_size=1))
def test_sessions_of_two_namespaces_never_join(headers, one, other):
    found, elsewhere = who(headers, namespace=one), who(headers, namespace=other)
    if found.session is not None and one != other:
        assert not {found.session, found.parent} & {elsewhere.session, elsewhere.parent} - {None}


SECRET = b"secret"


def test_a_namespace_is_a_short_digest_that_tells_nothing():
    name = namespace_of("Bearer sk-1", None, SECRET)
    assert name == namespace_of("Bearer sk-1", None, SECRET)
    assert len(name) == 24
    assert "sk-1" not in name
    assert name != namespace_of("Bearer sk-2", None, SECRET)
    assert name != namespace_of("Bearer sk-1", None, b"other")


def test_a_key_is_one_namespace_however_it_is_sent():
    name = namespace_of(None, "sk-1", SECRET)
    assert name == namespace_of("Bearer sk-1", None, SECRET) == namespace_of("bearer  sk-1 ", "sk-2", SECRET)
    assert name != namespace_of("Basic sk-1", None, SECRET)


@pytest.mark.parametrize(("authorization", "api_key"), [(None, None), ("", ""), (" ", None), ("Bearer ", " ")])
def test_without_a_key_there_is_one_namespace_for_all(authorization, api_key):
    assert namespace_of(authorization, api_key, SECRET) == NO_KEY


@given(st.none() | st.text(st.characters()), st.none() | st.text(st.characters()))
def test_any_credential_has_a_namespace(authorization, api_key):
    assert namespace_of(authorization, api_key, SECRET)

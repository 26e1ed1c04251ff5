"""What is forwarded and what never is."""

import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.gateway.paths import Kind, Routes, Shape

GATED = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]
PLACED = [
    *("/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score"),
    *("/tokenize", "/detokenize", "/pooling", "/classify", "/v1/audio/transcriptions", "/v1/audio/speech"),
    *(
        "/v1/images/generations",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/responses/resp_1/input_items",
    ),
]
DEVELOPMENT = [
    *("/reset_prefix_cache", "/sleep", "/wake_up", "/is_sleeping", "/collective_rpc", "/server_info", "/flush_cache"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/get_server_info", "/start_profile"),
    *("/update_weights_from_disk", "/release_memory_occupation", "/abort_request", "/pause_generation", "/shutdown"),
]


@pytest.mark.parametrize("path", GATED)
def test_turns_pass_the_gate(path):
    assert Routes().find(path.encode()).gated


@pytest.mark.parametrize("path", PLACED)
def test_other_calls_are_only_placed(path):
    assert not Routes().find(path.encode()).gated


@pytest.mark.parametrize(
    "path", ["/v1/models", "/metrics", "/health", "/", "", "/v1/audio/", "/v1/responses/", "/v2/chat"]
)
def test_other_paths_are_not_for_the_engines(path):
    assert Routes().find(path.encode()) is None


@pytest.mark.parametrize("path", DEVELOPMENT)
def test_development_endpoints_never_pass(path):
    routes = Routes(["/v1/*", "/internal/*"])
    spellings = [path, path.upper(), path + "/", path + "?x", path.replace("e", "%65", 1), "/v1" + path]
    for spelling in spellings:
        assert routes.find(spelling.partition("?")[0].encode()) is None
    with pytest.raises(ConfigError, match="extra_paths"):
        Routes([path])


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/audio/../../sleep", "/v1/audio/..%2f..%2fsleep", "/v1/audio/%2e%2e/%2e%2e/sleep", "/v1/audio//x"),
        *("/v1/audio/.", "/v1/audio/a;b", "/v1/audio/a\\b", "/v1/audio/%252e%252e/x"),
    ],
)
def test_wildcards_match_nothing_that_could_be_read_as_another_path(path):
    assert Routes().find(path.encode()) is None


def test_an_encoded_spelling_of_a_known_path_is_that_path():
    assert Routes().find(b"/v1/chat%2Fcompletions").kind is Kind.CHAT
    assert Routes().find(b"/v1/%63hat/completions").kind is Kind.CHAT


def test_extra_paths_are_exact_or_wildcards():
    routes = Routes(["/custom", "/deep/*"])
    assert routes.find(b"/custom").kind is Kind.OTHER
    assert routes.find(b"/custom/x") is None
    assert routes.find(b"/deep/x/y").kind is Kind.OTHER
    assert routes.find(b"/deep/") is None
    assert routes.find(b"/deep") is None


def test_extra_paths_do_not_change_the_table():
    routes = Routes(["/v1/chat/completions", "/v1/*"])
    assert routes.find(b"/v1/chat/completions").gated
    assert routes.find(b"/v1/audio/speech").kind is Kind.AUDIO


@pytest.mark.parametrize("text", ["/*", "custom", "", "/a/../b", "/a//b", "/sleep/*", "/a%2fb"])
def test_extra_paths_that_make_no_sense_are_refused(text):
    with pytest.raises(ConfigError, match="extra_paths"):
        Routes([text])


def test_methods_and_shapes():
    routes = Routes(["/custom"])
    assert routes.find(b"/v1/chat/completions").methods == {b"POST"}
    assert b"DELETE" in routes.find(b"/v1/responses/resp_1").methods
    assert b"HEAD" in routes.find(b"/custom").methods
    assert routes.find(b"/v1/messages").shape is Shape.ANTHROPIC
    assert routes.find(b"/v1/messages/count_tokens").shape is Shape.ANTHROPIC

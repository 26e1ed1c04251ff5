import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.fleet.vllm_command import VllmCommand, values


def test_a_model_is_enough() -> None:
    command = VllmCommand.build("some/model", [])
    assert command.arguments == (
        *("-m", "vllm.entrypoints.openai.api_server", "--model", "some/model"),
        *("--host", "127.0.0.1", "--port", str(command.port)),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
    )
    assert command.url == f"http://127.0.0.1:{command.port}"


def test_the_port_can_be_chosen() -> None:
    assert VllmCommand.build("m", [], 4321).url == "http://127.0.0.1:4321"


@pytest.mark.parametrize(
    "flags",
    [
        ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--host", "0.0.0.0", "--port", "4321"],
        ["--enable_prefix_caching", "--enable_prompt_tokens_details", "--host=0.0.0.0", "--port=4321"],
    ],
)
def test_what_the_user_gave_is_not_given_twice(flags: list[str]) -> None:
    command = VllmCommand.build("m", flags, 1234)
    assert command.arguments[4:] == tuple(flags)
    assert command.url == "http://127.0.0.1:4321"


def test_other_flags_pass_in_their_order_and_after_ours() -> None:
    flags = ["-tp", "2", "--hf-overrides", '{"a": 1}', "--max-model-len", "8192"]
    assert VllmCommand.build("m", flags).arguments[-6:] == tuple(flags)


def test_ipv6_addresses_are_bracketed_in_urls_only() -> None:
    command = VllmCommand.build("m", ["--host", "::"], 4321)
    assert (command.host, command.url) == ("::1", "http://[::1]:4321")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--disable-log-stats"], "--disable-log-stats: the proxy steers by the engine's metrics"),
        (["--disable_log_stats"], "--disable-log-stats"),
        (["--no-enable-prefix-caching"], "protects the prefix cache"),
        (["--model", "other"], "value of --vllm"),
        (["--uds", "/run/vllm.sock"], "over TCP"),
        (["--ssl-keyfile", "k"], "no TLS"),
        (["--headless"], "HTTP server"),
        (["--port", "eighty"], "'eighty' is not a port"),
        (["--port", "70000"], "'70000' is not a port"),
    ],
)
def test_flags_that_cannot_work_are_refused_in_plain_words(flags: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        VllmCommand.build("m", flags)


def test_values_of_flags() -> None:
    assert values(["--a_b", "1", "--c=2", "--flag", "--last"]) == {"--a-b": "1", "--c": "2", "--flag": "", "--last": ""}

"""Loading the settings: what counts, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.config import EngineKind, LawName, Settings
from concur_proxy.config.load import load
from concur_proxy.errors import ConfigError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.upper().startswith("CONCUR_"):
            monkeypatch.delenv(name)


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def problems(*args, **kwargs) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)
    return caught.value.message


# --- what counts ---


def test_without_anything_there_are_the_defaults():
    assert load() == Settings()


def test_flags_come_before_the_environment_and_that_before_the_file(written, monkeypatch):
    path = written("server: {port: 1, host: file}\ngate: {max_held: 1}\n")
    monkeypatch.setenv("CONCUR_SERVER__PORT", "2")
    monkeypatch.setenv("CONCUR_SERVER__HOST", "environment")
    settings = load(path, flags={"server.port": 3})
    assert (settings.server.port, settings.server.host, settings.gate.max_held) == (3, "environment", 1)


def test_sections_merge_and_lists_replace(written, monkeypatch):
    path = written("backends: [http://a, http://b]\ncontrol: {law: fixed, fixed: {window: 4}}\n")
    monkeypatch.setenv("CONCUR_BACKENDS", "http://c")
    monkeypatch.setenv("CONCUR_CONTROL__FIXED__WINDOW", "5")
    settings = load(path)
    assert [backend.url for backend in settings.backends] == ["http://c"]
    assert (settings.control.law, settings.control.fixed.window) == (LawName.FIXED, 5)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        (
            "CONCUR_BACKENDS",
            "http://a, http://b:80/v1/,",
            lambda s: [b.url for b in s.backends] == ["http://a", "http://b:80"],
        ),
        ("CONCUR_BACKENDS", '[{"url": "http://a", "kind": "vllm"}]', lambda s: s.backends[0].kind is EngineKind.VLLM),
        ("CONCUR_SESSIONS__HEADERS", "X-A,X-B", lambda s: s.sessions.headers == ("X-A", "X-B")),
        ("CONCUR_GATE", '{"max_wait_s": 7}', lambda s: s.gate.max_wait_s == 7),
        ("concur_gate__max_wait_s", "7.5", lambda s: s.gate.max_wait_s == 7.5),
        ("CONCUR_SERVER__ACCESS_LOG", "false", lambda s: s.server.access_log is False),
        ("CONCUR_SERVER__ADMIN_TOKEN", "", lambda s: s.server.admin_token is None),
    ],
)
def test_the_environment_is_read(name, value, read, monkeypatch):
    monkeypatch.setenv(name, value)
    assert read(load())


def test_null_in_the_environment_takes_a_value_away(written, monkeypatch):
    path = written("control: {window_max: 9}\n")
    monkeypatch.setenv("CONCUR_CONTROL__WINDOW_MAX", "null")
    assert load(path).control.window_max is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "server:\n", "control:\n  aimd:\n"])
def test_what_is_commented_out_is_at_its_default(text, written):
    assert load(written(text)) == Settings()


def test_a_merged_key_may_be_set_again(written):
    text = "server: &s {port: 1}\nbackends: [&b {url: 'http://a', kind: vllm}, {<<: *b, url: 'http://b'}]\n"
    backends = load(written(text)).backends
    assert [(backend.url, backend.kind) for backend in backends] == [("http://a", "vllm"), ("http://b", "vllm")]


@pytest.mark.parametrize(
    ("url", "kept", "name"),
    [
        ("http://host:8000", "http://host:8000", "host:8000"),
        ("https://host/engine/v1/", "https://host/engine", "host"),
        ("http://[::1]:8000/", "http://[::1]:8000", "[::1]:8000"),
        ("unix:/run/a.sock", "unix:/run/a.sock", "/run/a.sock"),
        ("unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"),
    ],
)
def test_urls_of_backends(url, kept, name):
    (backend,) = load(flags={"backends": [url]}).backends
    assert (backend.url, backend.id) == (kept, name)


@pytest.mark.parametrize(
    "text",
    [
        "backends: ['http://localhost:8080']\nserver: {port: 9090}",
        "backends: ['http://localhost:8000']",
        "backends: ['http://10.0.0.1:8080']",
        "backends: ['http://localhost:8080']\nserver: {host: 10.0.0.2}",
        "backends: ['unix:/run/a.sock']",
    ],
)
def test_an_engine_that_is_not_the_proxy_itself(text, written):
    assert load(written(text)).backends


# --- what is said about mistakes ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server:\n  port: 65536\n", ":2: server.port = 65536: must be a whole number, 0 to 65535"),
        ("server: {port: many}", ":1: server.port = 'many': must be a whole number, 0 to 65535"),
        ("server: {port: yes}", "server.port = True: is true or false, which this setting is not"),
        ("server: {host: 7}", "server.host = 7: must be text"),
        ("server: {access_log: 3}", "server.access_log = 3: must be true or false"),
        ("server: 5", ":1: server: must be a mapping of host, port"),
        ("server: {extra_paths: ['custom']}", "server.extra_paths[0] = 'custom': must be a path"),
        ("server: {extra_paths: /custom}", "server.extra_paths = '/custom': must be a list of texts"),
        ("gate: {max_wait_s: .nan}", "gate.max_wait_s = nan: must be a number, 0.1 to 86400"),
        ("gate: {max_wait_s: .inf}", "gate.max_wait_s = inf: must be a number, 0.1 to 86400"),
        ("gate: {pause: never}", "gate.pause = 'never': must be one of lazy, eager"),
        ("gate: {lease_min_s: 9, lease_max_s: 8}", ":1: gate: lease_min_s = 9 must not be above lease_max_s = 8"),
        ("control: {window_max: 0}", "control.window_max = 0: must be a number, 1 to 1000000000000, or null"),
        ("control: {window_min: 9, window_max: 8}", "control: window_min = 9 must not be above window_max = 8"),
        ("control: {stale_after_s: 61}", "control: stale_after_s = 61 must not be above decay_after_s = 60"),
        ("control: {aimd: {beta: 1}}", "control.aimd.beta = 1: must be a number, above 0 and below 1"),
        ("control: {aimd: {period_s: 0}}", "period_s = 0: must be a number, above 0 and at most 86400"),
        ("control: {aimd: {usage_low: 0.6}}", "control.aimd: usage_low = 0.6 must not be above usage_high = 0.5"),
        ("control: {eviction: {window_low: 64}}", "control.eviction: window_low = 64 must not be above window_start"),
        ("control: {pid: {kp: 2}}", "control.pid.kp = 2: must be a number, 0.5 to 1.5"),
        ("control: {footprint: {target: 0}}", "control.footprint.target = 0: must be a number, above 0 and at most 1"),
        ("backends: http://a", "backends: must be a list of backends"),
        ("backends: [{kind: vllm}]", ":1: backends[0].url: is required"),
        ("backends: [http://a, 'http://a/']", "backends: has two entries with the url http://a"),
        ("backends: [http://a/x, http://a/y]", "backends: has two entries with the name a"),
        ("backends: [ftp://a]", "backends[0].url = 'ftp://a': must be a URL such as http://host:8000"),
        ("backends: ['http://']", "must be a URL such as"),
        ("backends: ['http://a:99999']", "Port out of range"),
        ("backends: ['http://a:0']", "must not use port 0"),
        ("backends: ['http://localhost:8080/v1']", "http://localhost:8080 is where the proxy itself listens: name the"),
        ("backends: ['http://10.0.0.2']\nserver: {host: 10.0.0.2, port: 80}", "is where the proxy itself listens"),
        ("backends: ['http://127.0.0.1:8080']\nserver: {host: 0.0.0.0}", "is where the proxy itself listens"),
        ("backends: ['http://a?x=1']", "must not hold a query"),
        ("backends: ['unix:run/a.sock']", "needs an absolute path to a socket"),
        ("backends: [{url: 'http://a', name: 'a b'}]", "backends[0].name = 'a b': must be 1 to 64 letters"),
        ("tracing: {endpoint: 'collector:4317'}", "endpoint = 'collector:4317': must be such as http://collector:4318"),
        ("fleet: {kubernetes_service: My_Service}", "'My_Service': must be such as inference/vllm"),
        ("state: {name: 'a b'}", "state.name = 'a b': must be such as team-a.production"),
        ("sessions: {headers: [Authorization]}", "sessions.headers[0] = 'Authorization': carries a secret"),
        ("sessions: {headers: ['X Y']}", "must be the name of a header"),
        ("gate:\n  max_wait: 3\n", ":2: gate.max_wait: unknown key; did you mean max_wait_s?"),
        ("port: 80\n", ":1: port: unknown key here; did you mean server.port?"),
        ("zzz: 80\n", ":1: zzz: unknown key; allowed here: backends, server"),
        ("backends: [{url: 'http://a', nmae: b}]", "backends[0].nmae: unknown key; did you mean name?"),
        ("gate: {}\nlog: {}\ngate: {}\n", ":3: gate: is given twice, first in"),
        ("3: 4\n", ":1: 3: unknown key; allowed here: backends"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_named_with_line_key_value_and_range(text, said, written):
    assert said in problems(written(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: [\n", ":2: not valid YAML: expected the node content"),
        ("a: b: c\n", ":1: not valid YAML: mapping values are not allowed here"),
        ("- 1\n", "must hold settings as 'key: value' lines"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: &a [*a]\n", ":1: a: unknown key"),
        ("a: \x00\n", "not valid YAML: it holds characters that text does not have"),
        ("a: !!python/object:os.system {}\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_settings_file(text, said, written):
    assert said in problems(written(text))


def test_a_file_that_cannot_be_read(tmp_path):
    assert "none.yaml: cannot be read: No such file" in problems(tmp_path / "none.yaml")
    assert "cannot be read: Is a directory" in problems(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CONCUR_SERVER__PORT", "x", "CONCUR_SERVER__PORT: server.port = 'x': must be a whole number, 0 to 65535"),
        ("CONCUR_SERVER__PROT", "1", "CONCUR_SERVER__PROT: server.prot: unknown key; did you mean port?"),
        ("CONCUR_SERVR__PORT", "1", "CONCUR_SERVR__PORT: unknown variable; did you mean CONCUR_SERVER__PORT?"),
        ("CONCUR_PORT", "1", "CONCUR_PORT: unknown variable; did you mean CONCUR_SERVER__PORT?"),
        ("CONCUR_GATE_PAUSE", "1", "CONCUR_GATE_PAUSE: unknown variable; did you mean CONCUR_GATE__PAUSE?"),
        ("CONCUR_BACKENDS", "http://a,nonsense", "CONCUR_BACKENDS: backends[1].url = 'nonsense': must be a URL"),
        ("CONCUR_BACKENDS", "[{", "CONCUR_BACKENDS: backends: must be a list of backends"),
        ("CONCUR_BACKENDS__0__URL", "http://a", "backends: must be a list of backends"),
        ("CONCUR_GATE", "7", "CONCUR_GATE: gate: must be a mapping of mode, pause"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_environment_is_named_with_its_variable(name, value, said, monkeypatch):
    monkeypatch.setenv(name, value)
    assert said in problems()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONCUR_PROXY_SERVICE_HOST", "10.0.0.1"),
        ("CONCUR_PORT", "tcp://10.0.0.1:80"),
        ("CONCUR_PORT_80_TCP_PROTO", "tcp"),
        ("CONCUR_CONFIG", "config.yaml"),
        ("CONCUR_CLIENT_SECRET", "somebody else's"),
    ],
)
def test_variables_of_others_are_let_be(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    assert load() == Settings()


def test_a_mistake_in_a_flag_is_named_with_the_flag():
    assert "--port: server.port = 70000: must be a whole number, 0 to 65535" in problems(flags={"server.port": 70000})


def test_the_place_that_counts_is_named(written, monkeypatch):
    path = written("server: {port: 1}\n")
    monkeypatch.setenv("CONCUR_SERVER__PORT", "x")
    assert "CONCUR_SERVER__PORT: server.port = 'x'" in problems(path)


def test_all_problems_are_said_at_once(written, monkeypatch):
    path = written("server:\n  port: -1\ngate:\n  max_wait: 3\n  lease_min_s: 700\n")
    monkeypatch.setenv("CONCUR_LOG__LEVEL", "loud")
    said = problems(path, flags={"backends": ["x"]})
    assert said.startswith("4 problems in the configuration:\n")
    for part in ("server.port", "gate.max_wait", "CONCUR_LOG__LEVEL", "--backend: backends[0]"):
        assert part in said


@pytest.mark.parametrize(
    "text",
    [
        "server: {admin_token: 'the hidden'}",
        "server: {admin_token: [hidden]}",
        "backends: [{url: 'http://a', api_key: \"hidden\\n\"}]",
        "backends: ['http://me:hidden@a']",
        "backends: [{url: 'http://a', api_kye: hidden}]",
        "backends: [{api_key: hidden}]",
        "backends: {api_key: hidden}",
        "server: 'admin_token: hidden'",
    ],
)
def test_secrets_are_never_repeated(text, written):
    assert "hidden" not in problems(written(text))


def test_secrets_in_the_environment_are_never_repeated(monkeypatch):
    monkeypatch.setenv("CONCUR_BACKENDS", '[{"url": "http://a", "api_key": "hidden"')
    monkeypatch.setenv("CONCUR_SERVER__ADMIN_TOKN", "hidden")
    monkeypatch.setenv("CONCUR_SRV__ADMIN_TOKEN", "hidden")
    assert "hidden" not in problems()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["http://a", "vllm"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["backends", "url", "server", "port", "control", "aimd", "beta", "gate", "window_max", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(VALUES)
def test_any_yaml_gives_settings_or_a_config_error(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    try:
        settings = load(path)
    except ConfigError as error:
        assert "config.yaml" in error.message  # noqa: PT017 - either way is fine, but this much holds
    else:
        assert isinstance(settings, Settings)

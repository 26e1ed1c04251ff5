"""What is read from files and from the identity provider is read again when it changes."""

import asyncio
import contextlib
import http.server
import json
import logging
import threading

import pytest

from concur_proxy.auth import jwks
from concur_proxy.auth.files import add_key
from concur_proxy.config import AuthSettings, Settings
from concur_proxy.errors import ConfigError
from concur_proxy.runtime import doorkeeper as module
from concur_proxy.runtime.doorkeeper import Doorkeeper
from concur_proxy.runtime.node import Node
from concur_proxy.runtime.serving import _readiness
from concur_proxy.runtime.watch import FileWatch
from tests.auth.test_tokens import AUDIENCE, EC, GOOD, JWKS, jwk, token

KEYLESS = {"keys": [JWKS["keys"][1]]}


def named(access, key):
    caller = access.caller({"authorization": f"Bearer {key}"})
    return caller.name if caller is not None else None


def test_a_watch_tells_every_change_once(tmp_path):
    path, told = tmp_path / "f", []
    watch = FileWatch([str(path), str(tmp_path / "g")], lambda: told.append(path.exists()))
    assert not watch.check()
    path.write_text("a")
    assert [watch.check(), watch.check()] == [True, False]
    path.write_text("bb")
    assert watch.check()
    path.unlink()
    assert watch.check()
    assert told == [True, True, False]


def test_a_watch_sees_the_swap_of_links_by_which_kubernetes_changes_a_mount(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys.yaml").write_text("same")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "keys.yaml").symlink_to("..data/keys.yaml")
    told = []
    watch = FileWatch([str(tmp_path / "keys.yaml")], lambda: told.append(1))
    (tmp_path / "..next").symlink_to("two")
    (tmp_path / "..next").rename(tmp_path / "..data")
    assert watch.check()
    assert told == [1]


@pytest.mark.parametrize("error", [ConfigError("it is torn"), RuntimeError("it is torn")])
def test_a_change_that_cannot_be_used_is_told_and_the_next_one_is_seen(tmp_path, caplog, error):
    path, errors = tmp_path / "f", [error]

    def use():
        if errors:
            raise errors.pop()

    watch = FileWatch([str(path)], use)
    path.write_text("a")
    with caplog.at_level(logging.INFO):
        assert watch.check()
    assert "it is torn" in caplog.text
    assert "stays in force" in caplog.text
    path.write_text("bb")
    assert watch.check()


def test_keys_are_read_again_and_a_broken_file_takes_none_away(tmp_path, caplog):
    file = tmp_path / "keys.yaml"
    first = add_key(file, "a")
    keeper = Doorkeeper(AuthSettings(keys_file=str(file)))
    (watch,) = keeper._watches
    assert named(keeper.access, first) == "a"
    second = add_key(file, "b")
    assert watch.check()
    assert [named(keeper.access, key) for key in (first, second)] == ["a", "b"]
    file.write_text("keys: [half of a")
    assert watch.check()
    assert [named(keeper.access, key) for key in (first, second)] == ["a", "b"]
    assert "stays in force" in caplog.text
    file.unlink()
    third = add_key(file, "c")
    assert watch.check()
    assert [named(keeper.access, key) for key in (first, second, third)] == [None, None, "c"]


def test_keys_come_from_the_environment_too(tmp_path, monkeypatch):
    from concur_proxy.config.load import load
    from concur_proxy.config.words import differences

    file = tmp_path / "keys.yaml"
    key = add_key(file, "a")
    monkeypatch.setenv("CONCUR_AUTH__KEYS", file.read_text())
    settings = load()
    assert settings.auth.is_on
    assert named(Doorkeeper(settings.auth).access, key) == "a"
    assert ("auth.keys", "********") in differences(settings)
    assert not Settings().auth.is_on


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), (b"\xff", "cannot be read"), (b"a: b", "must hold `salt`")]
)
def test_files_that_cannot_be_used_at_the_start_are_said_with_their_setting(tmp_path, content, said):
    file = tmp_path / "keys.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as error:
        Doorkeeper(AuthSettings(keys_file=str(file)))
    assert error.value.message.startswith("auth.keys_file")


def test_public_keys_in_a_file(tmp_path):
    file = tmp_path / "jwks.json"
    rules = {"issuer": "https://login.example.test", "audience": AUDIENCE, "jwks_file": str(file)}
    file.write_text(json.dumps(KEYLESS))
    keeper = Doorkeeper(AuthSettings(jwt=rules))
    assert named(keeper.access, GOOD) is None
    file.write_text(json.dumps(JWKS))
    assert keeper._watches[0].check()
    assert named(keeper.access, GOOD) == "team-a"
    for bad in ("{", "[]", '{"keys": []}', "{}"):
        file.write_text(bad)
        with pytest.raises(ConfigError, match=r"auth\.jwt\.jwks_file"):
            Doorkeeper(AuthSettings(jwt=rules))


class Provider:
    """An identity provider on loopback: ``answers`` by path."""

    def __init__(self):
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                provider.asked.append(self.path)
                status, body = provider.answers.get(self.path, (404, {}))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.asked = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.answers = {
            "/.well-known/openid-configuration": (200, {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}),
            "/jwks": (200, JWKS),
        }

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def keeper_of(provider, **changes):
    return Doorkeeper(AuthSettings(jwt={"issuer": provider.url, "audience": AUDIENCE, **changes}))


@pytest.mark.parametrize("url", [None, "/jwks"])
def test_the_providers_keys_are_found_and_a_new_one_is_fetched_when_a_token_names_it(monkeypatch, url):
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def main(provider):
        keeper = keeper_of(provider, **({"jwks_url": provider.url + url} if url else {}))
        mine = token(iss=provider.url)
        newer = token(iss=provider.url, key=EC, algorithm="ES256", kid="new")
        assert named(keeper.access, mine) is None
        keeper.start()
        await until(lambda: named(keeper.access, mine) == "team-a")
        assert provider.asked.count("/jwks") == 1
        provider.answers["/jwks"] = (200, {"keys": [jwk(EC, "ES256", "new")]})
        assert named(keeper.access, newer) is None
        await until(lambda: named(keeper.access, newer) == "team-a")
        assert named(keeper.access, mine) is None, "a key that the provider took back still opens"
        await keeper.stop()

    with Provider() as provider:
        asyncio.run(main(provider))


@pytest.mark.parametrize(
    "broken", [(500, {}), (200, b"{"), (200, []), (200, b" " * (2 << 20)), (302, {}), (200, {"keys": []})]
)
def test_a_provider_that_fails_is_asked_again_and_what_is_known_stays(monkeypatch, caplog, broken):
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "FETCH_EVERY_S", 0.02)

    async def main(provider):
        keeper = keeper_of(provider)
        mine = token(iss=provider.url)
        provider.answers["/jwks"] = broken
        keeper.start()
        await until(lambda: provider.asked.count("/jwks") > 1)
        assert named(keeper.access, mine) is None
        provider.answers["/jwks"] = (200, JWKS)
        await until(lambda: named(keeper.access, mine) == "team-a")
        provider.answers["/jwks"] = broken
        asked = provider.asked.count("/jwks")
        await until(lambda: provider.asked.count("/jwks") > asked + 1)
        assert named(keeper.access, mine) == ("team-a" if broken != (200, {"keys": []}) else None)
        await keeper.stop()

    with Provider() as provider:
        asyncio.run(main(provider))
    assert "identity provider" in caplog.text


@pytest.mark.parametrize("has_keys", [False, True])
def test_nobody_is_sent_to_a_proxy_that_would_refuse_good_tokens(monkeypatch, tmp_path, has_keys):
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    if has_keys:
        add_key(tmp_path / "keys.yaml", "a")
    files = {"keys_file": str(tmp_path / "keys.yaml")} if has_keys else {}

    async def main(provider):
        rules = {"jwt": {"issuer": provider.url, "audience": AUDIENCE}, **files}
        node = Node(Settings.model_validate({"backends": ["http://127.0.0.1:9"], "auth": rules}))
        node.dispatcher.is_up = lambda _: True
        node.targets["b"] = None
        keeper, told = node.doorkeeper, "identity provider"
        provider.answers["/jwks"] = (500, {})
        assert (_readiness(node).ready, told in _readiness(node).detail) == (False, True)
        keeper.start()
        await until(lambda: provider.asked.count("/jwks") > 1)
        assert _readiness(node).ready == has_keys
        provider.answers["/jwks"] = (200, JWKS)
        await until(lambda: named(keeper.access, token(iss=provider.url)) == "team-a")
        provider.answers["/jwks"] = (200, {"keys": []})
        asked = provider.asked.count("/jwks")
        assert (_readiness(node).ready, told in _readiness(node).detail) == (True, False)
        await until(lambda: provider.asked.count("/jwks") > asked or keeper._unknown_key.set())
        assert _readiness(node).ready, "a provider that fails later takes nobody's place away"
        await keeper.stop()

    with Provider() as provider:
        asyncio.run(main(provider))


def test_without_a_provider_nobody_waits_for_one(tmp_path):
    add_key(tmp_path / "keys.yaml", "a")
    assert Doorkeeper(AuthSettings(keys_file=str(tmp_path / "keys.yaml"))).is_ready
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(JWKS))
    rules = {"issuer": "https://login.example.test", "audience": AUDIENCE, "jwks_file": str(file)}
    assert Doorkeeper(AuthSettings(jwt=rules)).is_ready


class Dripping(http.server.BaseHTTPRequestHandler):
    """A provider whose answer comes byte by byte and never ends."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b" ")
                self.server.slow.wait(0.01)

    def log_message(self, *_):
        pass


def test_keys_that_come_for_ever_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(jwks, "WHOLE_S", 0.5)
    monkeypatch.setattr(jwks, "MAX_BYTES", 1 << 40)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        server.slow = threading.Event()
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/jwks"
        with pytest.raises(jwks.JwksError, match=r"no whole answer within 0\.5 s"):
            asyncio.run(asyncio.wait_for(jwks.fetch("https://i", url), 60))
        server.shutdown()


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://a..b/", "http://[::1/", "http://\u2028/", "x:///"])
def test_an_address_that_is_none_is_said(url):
    with pytest.raises(jwks.JwksError):
        asyncio.run(jwks.fetch("https://i", url))


@pytest.mark.parametrize(
    "about", [{"issuer": "https://other.test"}, {"jwks_uri": 1}, {"jwks_uri": "file:///etc/passwd"}]
)
def test_a_discovery_document_of_somebody_else_is_not_followed(about):
    async def main(provider):
        usual = {"issuer": provider.url, "jwks_uri": f"{provider.url}/jwks"}
        provider.answers["/.well-known/openid-configuration"] = (200, {**usual, **about})
        assert not await keeper_of(provider)._fetch()
        assert "/jwks" not in provider.asked

    with Provider() as provider:
        asyncio.run(main(provider))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"issuer": "https://i"}, "issuer and audience go together"),
        ({"issuer": "http://login.example.test", "audience": "a"}, "must be an https:// URL"),
        ({"issuer": "https://i", "audience": "a", "jwks_url": "https://i/j", "jwks_file": "f"}, "take one of them"),
        ({"issuer": "https://i", "audience": "a", "algorithms": ["HS256"]}, "RS256"),
        ({"issuer": "https://i", "audience": "a", "algorithms": ["none"]}, "RS256"),
        ({"issuer": "https://i", "audience": "a", "algorithms": []}, "at least 1"),
    ],
)
def test_rules_that_would_open_too_much_are_refused(rules, said):
    with pytest.raises(ValueError, match=said):
        AuthSettings(jwt=rules)

"""The command line of a vLLM that stands behind the proxy: the user's flags, and those the proxy needs. Pure but for
finding a free port.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from concur_proxy.errors import ConfigError

LOOPBACK = "127.0.0.1"
NEEDED = ("--enable-prefix-caching", "--enable-prompt-tokens-details")
NO_TLS = "the engine listens where only the proxy goes and needs no TLS; leave this flag out"
REFUSED = {
    "--disable-log-stats": "the proxy steers by the engine's metrics, and this flag turns them off; leave it out",
    "--no-enable-prefix-caching": "the proxy protects the prefix cache, and this flag turns it off; leave it out",
    "--model": "the model is the value of --vllm; leave this flag out",
    "--uds": "the proxy reaches the engine that it starts over TCP; leave this flag out",
    "--ssl-certfile": NO_TLS,
    "--ssl-keyfile": NO_TLS,
    "--headless": "the proxy needs the engine's HTTP server, and this flag turns it off; leave it out",
}


@dataclass(frozen=True, slots=True)
class VllmCommand:
    """What to run, and where it will answer: loopback and a free port unless the user's flags say otherwise."""

    arguments: tuple[str, ...]
    """Of the Python interpreter."""
    host: str
    """Where to connect; not what it binds, which may be every address."""
    port: int

    @classmethod
    def build(cls, model: str, flags: Sequence[str], port: int | None = None) -> Self:
        """Build it. Raises ``ConfigError`` for flags that cannot work behind the proxy."""
        given = values(flags)
        for flag, reason in REFUSED.items():
            if flag in given:
                raise ConfigError(f"engine flag {flag}: {reason}")
        host = given.get("--host") or LOOPBACK
        port = _port(given["--port"]) if "--port" in given else port or _free_port()
        ours = {"--host": (host,), "--port": (str(port),)} | dict.fromkeys(NEEDED, ())
        added = [word for flag, value in ours.items() if flag not in given for word in (flag, *value)]
        # The module rather than the `vllm` command, which some builds of vLLM come without.
        server = ("-m", "vllm.entrypoints.openai.api_server", "--model", model)
        return cls((*server, *added, *flags), _reachable(host), port)

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def values(flags: Sequence[str]) -> Mapping[str, str]:
    """Flag → its value, empty where there is none. vLLM takes ``--a-b c``, ``--a_b c`` and ``--a-b=c`` alike."""
    found: dict[str, str] = {}
    for word, following in itertools.zip_longest(flags, flags[1:], fillvalue="--"):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name.replace("_", "-")] = value if equals or following.startswith("--") else following
    return found


def _reachable(host: str) -> str:
    """An address that means every interface is no place to connect to."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - what the user may have given


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise ConfigError(f"engine flag --port: {text!r} is not a port (1 to 65535)")
    return int(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

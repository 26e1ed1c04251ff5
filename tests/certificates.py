"""Throw-away certificates for tests: an authority, a server, a client, made with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SERVER = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
CLIENT = "extendedKeyUsage=clientAuth"


@dataclass(frozen=True)
class Pair:
    cert: str
    key: str


@dataclass(frozen=True)
class Certificates:
    ca: str
    server: Pair
    client: Pair

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        ca = _issue(folder, "ca", "basicConstraints=critical,CA:TRUE")
        signed = ("-CA", ca.cert, "-CAkey", ca.key)
        return cls(ca.cert, _issue(folder, "server", SERVER, *signed), _issue(folder, "client", CLIENT, *signed))


def _issue(folder: Path, name: str, extension: str, *signed: str) -> Pair:
    pair = Pair(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", pair.key)
    about = ("-days", "2", "-subj", f"/CN=test {name}", "-addext", extension)
    command = ("openssl", "req", "-x509", *new_key, *about, *signed, "-out", pair.cert)
    subprocess.run(command, check=True, capture_output=True)
    return pair

"""Certificates that are replaced while the proxy runs: new connections are met, and made, with the new ones."""

from __future__ import annotations

import functools
import ssl

from concur_proxy.config import BackendSettings, Settings
from concur_proxy.config.tls import engine_context, renew_engine, renew_server
from concur_proxy.runtime.watch import FileWatch


def watches(served: ssl.SSLContext | None, settings: Settings) -> list[FileWatch]:
    """Return the watches of all certificates that the settings name; ``served``: what clients are met with."""
    found = [_of_engine(backend) for backend in settings.backends if backend.uses_tls and _files(backend)]
    if served is not None:
        server = settings.server
        files = _named(server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)
        found.append(FileWatch(files, functools.partial(renew_server, served, server)))
    return found


def _of_engine(backend: BackendSettings) -> FileWatch:
    context = engine_context(backend)
    assert context is not None
    return FileWatch(_files(backend), functools.partial(renew_engine, context, backend))


def _files(backend: BackendSettings) -> list[str]:
    return _named(backend.ca_file, backend.cert_file, backend.key_file)


def _named(*paths: str | None) -> list[str]:
    return [path for path in paths if path is not None]

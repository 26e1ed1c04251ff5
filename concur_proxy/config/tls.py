"""TLS as the settings describe it: towards the engines, and towards the clients."""

from __future__ import annotations

import functools
import ssl

from concur_proxy.config.tree import BackendSettings, ServerSettings
from concur_proxy.errors import ConfigError

HTTP_1_1 = ["http/1.1"]


def engine_context(backend: BackendSettings) -> ssl.SSLContext | None:
    """Return how to meet a backend's certificate, None where no URL of it wants TLS.

    Backends with the same settings share one. Raises ``ConfigError`` for files that cannot be used.
    """
    if not backend.uses_tls:
        return None
    try:
        context = _trusting(backend.ca_file, backend.insecure, backend.cert_file, backend.key_file)
    except OSError as error:  # of which ssl.SSLError is one
        raise ConfigError(
            f"backend {backend.id}: ca_file {backend.ca_file!r} cannot be used ({_why(error)}); "
            "give a file of CA certificates in PEM format"
        ) from None
    if backend.cert_file is not None:
        _show(context, backend)
    return context


def _show(context: ssl.SSLContext, backend: BackendSettings) -> None:
    assert backend.cert_file is not None
    try:
        context.load_cert_chain(backend.cert_file, backend.key_file)
    except OSError as error:
        raise ConfigError(
            f"backend {backend.id}: cert_file {backend.cert_file!r} with key_file {backend.key_file!r} cannot be used "
            f"({_why(error)}); give a certificate chain and its unencrypted key in PEM format"
        ) from None


@functools.lru_cache(maxsize=64)
def _trusting(ca_file: str | None, insecure: bool, *_own: str | None) -> ssl.SSLContext:  # noqa: FBT001 - a key of the cache
    """``_own``: certificate and key to show. Who shows another one needs a context of its own."""
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(HTTP_1_1)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def server_context(server: ServerSettings) -> ssl.SSLContext | None:
    """Return what clients are met with, None for plain HTTP. Raises ``ConfigError`` for files that cannot be used."""
    if server.tls_cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(HTTP_1_1)
    try:
        context.load_cert_chain(server.tls_cert_file, server.tls_key_file)
    except OSError as error:
        raise ConfigError(
            f"server.tls_cert_file {server.tls_cert_file!r} with tls_key_file {server.tls_key_file!r} cannot be used "
            f"({_why(error)}); give a certificate chain and its unencrypted key in PEM format"
        ) from None
    if server.tls_client_ca_file is not None:
        _demand_certificates(context, server.tls_client_ca_file)
    return context


def renew_server(context: ssl.SSLContext, server: ServerSettings) -> None:
    """Have new connections met with what the files hold now.

    Raises ``ConfigError``, and changes nothing, where they cannot be used. CA certificates that were added count from
    now on; one that was taken out counts until the next start.
    """
    server_context(server)  # what is half written must not get into a context that serves
    assert server.tls_cert_file is not None
    context.load_cert_chain(server.tls_cert_file, server.tls_key_file)
    if server.tls_client_ca_file is not None:
        _demand_certificates(context, server.tls_client_ca_file)


def renew_engine(context: ssl.SSLContext, backend: BackendSettings) -> None:
    """The same for connections to a backend."""
    _trusting.__wrapped__(backend.ca_file, backend.insecure)
    if backend.ca_file is not None:
        context.load_verify_locations(backend.ca_file)
    if backend.cert_file is not None:
        _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), backend)
        _show(context, backend)


def _demand_certificates(context: ssl.SSLContext, ca_file: str) -> None:
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise ConfigError(
            f"server.tls_client_ca_file {ca_file!r} cannot be used ({_why(error)}); "
            "give a file of CA certificates in PEM format"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)

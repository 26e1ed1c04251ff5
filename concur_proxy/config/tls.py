"""TLS as the settings describe it: towards the engines, and towards the clients."""

from __future__ import annotations

import functools
import ssl

from concur_proxy.config.tree import BackendSettings, ServerSettings
from concur_proxy.errors import ConfigError

HTTP_1_1 = ["http/1.1"]


def engine_context(backend: BackendSettings) -> ssl.SSLContext | None:
    """Return how to meet a backend's certificate, None where no URL of it wants TLS.

    Backends with the same settings share one. Raises ``ConfigError`` for a CA file that cannot be used.
    """
    if not backend.uses_tls:
        return None
    try:
        return _trusting(backend.ca_file, backend.insecure)
    except OSError as error:  # of which ssl.SSLError is one
        raise ConfigError(
            f"backend {backend.id}: ca_file {backend.ca_file!r} cannot be used ({_why(error)}); "
            "give a file of CA certificates in PEM format"
        ) from None


@functools.lru_cache(maxsize=64)
def _trusting(ca_file: str | None, insecure: bool) -> ssl.SSLContext:  # noqa: FBT001 - a key of the cache
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

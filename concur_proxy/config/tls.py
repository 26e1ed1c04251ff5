"""TLS as the settings describe it: towards the engines, and towards the clients."""

from __future__ import annotations

import errno
import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Self

from concur_proxy.config.tree import BackendSettings, ServerSettings
from concur_proxy.errors import ConfigError

HTTP_1_1 = ["http/1.1"]

Make = Callable[[], ssl.SSLContext]
Stamp = tuple[int, int, int] | None


class Renewable(ssl.SSLContext):
    """A context whose new connections go by what its files held when they were read last; open ones go on.

    Each reading makes a whole context: one that serves would keep authorities that were taken out, and resume the
    sessions of those whom they vouched for. ``files``: what it is made from, besides the system's own.
    """

    def __new__(cls, make: Make, *files: str | None) -> Self:  # noqa: ARG004 - what __init__ takes
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, make: Make, *files: str | None) -> None:
        """Raise ``ConfigError`` where ``make`` does."""
        self.files = tuple(file for file in files if file is not None)
        self._make = make
        self.renew()

    def renew(self) -> None:
        """Read the files; raise ``ConfigError``, and change nothing, where they cannot be used."""
        self._read = self._look()  # before they are read: what is written meanwhile is a change of its own
        self._current = self._make()

    def is_stale(self) -> bool:
        """Tell whether the files have changed since they were read, or were tried, last."""
        return self._look() != self._read

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the signature of what it stands for
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection, as event loops do."""
        return self._current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def _look(self) -> list[Stamp]:
        return [_stamp(file) for file in self.files]


def engine_context(backend: BackendSettings) -> Renewable | None:
    """Return how to meet a backend's certificate, None where no URL of it wants TLS.

    Backends with the same settings share one. Raises ``ConfigError`` for files that cannot be used.
    """
    if not backend.uses_tls:
        return None
    try:
        return _shared(backend.ca_file, backend.insecure, backend.cert_file, backend.key_file)
    except ConfigError as error:
        raise ConfigError(f"backend {backend.id}: {error.message}") from None


@functools.lru_cache(maxsize=64)
def _shared(ca_file: str | None, insecure: bool, cert_file: str | None, key_file: str | None) -> Renewable:  # noqa: FBT001 - a key of the cache
    make = functools.partial(_engine, ca_file, insecure, cert_file, key_file)
    return Renewable(make, ca_file, cert_file, key_file)


def _engine(ca_file: str | None, insecure: bool, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:  # noqa: FBT001
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # of which ssl.SSLError is one
        raise _no_authority("ca_file", ca_file, error) from None
    context.set_alpn_protocols(HTTP_1_1)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file is not None:
        _show(context, cert_file, key_file, "cert_file", "key_file")
    return context


def server_context(server: ServerSettings) -> Renewable | None:
    """Return what clients are met with, None for plain HTTP. Raises ``ConfigError`` for files that cannot be used."""
    if server.tls_cert_file is None:
        return None
    make = functools.partial(_server, server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)
    return Renewable(make, server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)


def _server(cert_file: str, key_file: str | None, client_ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.options |= ssl.OP_NO_RENEGOTIATION  # costs us more than them; newer versions of OpenSSL refuse it anyway
    context.set_alpn_protocols(HTTP_1_1)
    _show(context, cert_file, key_file, "server.tls_cert_file", "tls_key_file")
    if client_ca_file is not None:
        try:
            context.load_verify_locations(client_ca_file)
        except OSError as error:
            raise _no_authority("server.tls_client_ca_file", client_ca_file, error) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _show(context: ssl.SSLContext, cert_file: str, key_file: str | None, cert_name: str, key_name: str) -> None:
    try:
        context.load_cert_chain(cert_file, key_file, _no_password)
    except OSError as error:
        raise ConfigError(
            f"{cert_name} {cert_file!r} with {key_name} {key_file!r} cannot be used "
            f"({_why(error)}); give a certificate chain and its unencrypted key in PEM format"
        ) from None


def _no_password() -> str:
    """Say so, where OpenSSL would ask whoever sits at the terminal, and wait."""
    raise OSError(errno.EACCES, "the key is encrypted")


def _no_authority(name: str, file: str | None, error: OSError) -> ConfigError:
    return ConfigError(f"{name} {file!r} cannot be used ({_why(error)}); give a file of CA certificates in PEM format")


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not in PEM format").replace("_", " ").lower()
    return error.strerror or str(error)


def _stamp(file: str) -> Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

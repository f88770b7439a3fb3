"""TLS contexts from certificate files."""

from __future__ import annotations

import ssl

from mttp.errors import TransportError

__all__ = ["tls_context"]


def tls_context(
    certificate: str | None = None, client_certificate: str | None = None, client_key: str | None = None
) -> ssl.SSLContext:
    """
    Return a TLS context with these files; the default for `certificate` is the system's trusted ones.

    Raises TransportError if a file can't be used.
    """
    try:
        context = ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError) as error:
        raise TransportError(f"certificate {certificate} can't be used: {error}") from error
    try:
        if client_certificate:
            context.load_cert_chain(client_certificate, client_key)
    except (OSError, ValueError) as error:
        files = " and ".join(filter(None, (client_certificate, client_key)))
        raise TransportError(f"{files} can't be used as client certificate: {error}") from error
    return context

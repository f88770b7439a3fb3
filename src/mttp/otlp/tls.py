"""What TLS trusts, and what it shows, by files."""

from __future__ import annotations

import ssl

from mttp.errors import TransportError

__all__ = ["tls_context"]


def tls_context(
    certificate: str | None = None, client_certificate: str | None = None, client_key: str | None = None
) -> ssl.SSLContext:
    """
    What TLS uses: these files; without `certificate` the certificates that the system trusts.

    Raises TransportError where a file can't be used.
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

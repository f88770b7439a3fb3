"""`mttp probe`: which values a trace receiver keeps, and the profile to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlsplit

import typer

from mttp.cli.output import Json, console, print_json, print_page, receiver
from mttp.errors import ConfigureError

__all__ = ["probe"]


def probe(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The receiver: http://HOST:4318 or grpc://HOST:4317.")
    ],
    *,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="URL",
            help="Query API of the store: jaeger://HOST:16686, tempo://HOST:3200, phoenix:// or mlflow://.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Header of every request; may be repeated."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for spans to arrive.")
    ] = 300.0,
    all_: Annotated[bool, typer.Option("--all", help="Also list values that arrived unchanged.")] = False,
    json: Json = False,
) -> None:
    """
    Test which values a trace receiver keeps: send, read back, report what was lost.

    A receiver that answers 200 may still truncate, change or drop values. The report lists these values,
    and the profile that avoids them. The probe writes some forty small traces and one of 6 MB, as the
    service mttp-probe. Two have NaN and infinity: Jaeger's interface can't list that service while they
    are stored.

    \b
    Examples:
      mttp probe http://localhost:6006
      mttp probe http://localhost:4318 --query jaeger://localhost:16686
      mttp probe grpc://localhost:4317 --query tempo://localhost:3200 --all

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, or a receiver that can't be reached.
    """
    from mttp.codec.secrets import without_secrets
    from mttp.pages.checks import probe_page
    from mttp.reading import stores
    from mttp.workflows.probing import Probe

    transport = receiver(url, header=header)
    address = query or _guessed(url, transport.profile)
    if address and not stores.is_address(address):
        known = ", ".join(f"{scheme}://" for scheme in stores.SCHEMES)
        raise ConfigureError(
            f"--query {without_secrets(address)!r} is not the address of a trace store; "
            f"start it with one of {known}"
        )
    with _status_line() as show_status:
        job = Probe(
            transport=transport,
            store=stores.open(address) if address else None,
            wait=wait,
            on_progress=show_status,
        )
        report = job.run()
    transport.shutdown()
    if json:
        facts = {name: getattr(report, name) for name in type(report).__slots__}
        print_json(facts | {"silent": report.silent})
    else:
        print_page(probe_page(report, everything=all_))


def _guessed(url: str, profile: str) -> str:
    """Return the query address of a store that accepts and returns traces at one port, or an empty string."""
    if profile in ("phoenix", "mlflow"):
        parts = urlsplit(url)
        secure = "?tls=true" if parts.scheme == "https" else ""
        return f"{profile}://{parts.netloc}{parts.path.removesuffix('/v1/traces')}{secure}"
    return ""


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error, if that is a terminal."""
    with console(error=True).status("probing") as status:
        yield lambda text: status.update(text)

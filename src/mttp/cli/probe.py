"""`mttp probe`: which values a trace receiver keeps, and the profile to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.table import Table

from mttp.cli.output import Json, console, print_json, receiver, say
from mttp.cli.report.words import count, printed
from mttp.codec.secrets import without_secrets
from mttp.errors import ConfigureError
from mttp.reading import stores
from mttp.reading.probing import Probe, ProbeReport

__all__ = ["probe"]

_WORDS = {"whole": "", "changed": "changed", "lost": "LOST", "refused": "refused", "unknown": "?"}


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
    and the profile that avoids them. The probe writes some forty small traces and one of 6 MB.

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
    transport = receiver(url, header=header)
    address = query or _guessed(url, transport.profile)
    if address and not stores.is_address(address):
        known = ", ".join(f"{scheme}://" for scheme in stores.SCHEMES)
        raise ConfigureError(
            f"--query {without_secrets(address)!r} is not the address of a trace store; "
            f"start it with one of {known}"
        )
    with _telling() as tell:
        job = Probe(
            transport=transport,
            store=stores.open(address) if address else None,
            wait=wait,
            on_progress=tell,
        )
        report = job.run()
    transport.shutdown()
    if json:
        print_json(
            {**{name: getattr(report, name) for name in ProbeReport.__slots__}, "silent": report.silent}
        )
    else:
        _show(report, every=all_)


def _guessed(url: str, profile: str) -> str:
    """Return the query address of a store that accepts and returns traces at one port, or an empty string."""
    if profile in ("phoenix", "mlflow"):
        parts = urlsplit(url)
        secure = "?tls=true" if parts.scheme == "https" else ""
        return f"{profile}://{parts.netloc}{parts.path.removesuffix('/v1/traces')}{secure}"
    return ""


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error, if that is a terminal."""
    with console(error=True).status("probing") as status:
        yield lambda what: status.update(what)


def _show(report: ProbeReport, *, every: bool) -> None:
    out = console()
    shown = [finding for finding in report.findings if every or finding.outcome != "whole"]
    if shown:
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("value", "", "result"):
            table.add_column(title, overflow="fold")
        for finding in shown:
            table.add_row(printed(finding.case), _WORDS[finding.outcome], printed(finding.detail))
        out.print(table, "")
    say("\n".join(_conclusion(report)))


def _conclusion(report: ProbeReport) -> Sequence[str]:
    whole = sum(finding.outcome == "whole" for finding in report.findings)
    total = count(len(report.findings), "case")
    if not report.query:
        arrived = [f"{total} sent to {report.to}; give --query to see which arrived"]
    else:
        arrived = [
            f"{whole} of {total} arrived unchanged",
            f"{len(report.silent)} were accepted and then changed or lost",
        ]
    return [
        *arrived,
        f"logs: {report.logs}",
        f"use profile={report.profile}",
        *([f"lost with every profile: {', '.join(report.helpless)}"] if report.helpless else []),
        f"run id of the probe's traces: {report.run_id}",
    ]

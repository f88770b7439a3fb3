"""`mttp probe`: what a receiver of traces keeps of every kind of value, and the profile to use."""

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
            help="Where traces are read: jaeger://HOST:16686, tempo://HOST:3200, phoenix:// or mlflow://.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Sent with every request; may be repeated."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long spans may take to arrive.")
    ] = 300.0,
    all_: Annotated[bool, typer.Option("--all", help="Also show what arrived whole.")] = False,
    json: Json = False,
) -> None:
    """
    Send every kind of value to a receiver of traces, read it back, and say what was lost.

    A receiver that answers 200 may still cut, change or drop what it was sent: this shows what, and which
    profile keeps it from being sent. It writes some forty small traces there, and one of 6 MB.

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
            f"--query {without_secrets(address)!r} is no trace store; it begins with one of {known}"
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
    """Where one and the same port takes traces and gives them."""
    if profile in ("phoenix", "mlflow"):
        parts = urlsplit(url)
        secure = "?tls=true" if parts.scheme == "https" else ""
        return f"{profile}://{parts.netloc}{parts.path.removesuffix('/v1/traces')}{secure}"
    return ""


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A line on standard error, where that is a terminal."""
    with console(error=True).status("probing") as status:
        yield lambda what: status.update(what)


def _show(report: ProbeReport, *, every: bool) -> None:
    out = console()
    shown = [finding for finding in report.findings if every or finding.outcome != "whole"]
    if shown:
        table = Table(box=None, pad_edge=False, header_style="")
        for title in ("sent", "", "what came of it"):
            table.add_column(title, overflow="fold")
        for finding in shown:
            table.add_row(printed(finding.case), _WORDS[finding.outcome], printed(finding.detail))
        out.print(table, "")
    say("\n".join(_conclusion(report)))


def _conclusion(report: ProbeReport) -> Sequence[str]:
    whole = sum(finding.outcome == "whole" for finding in report.findings)
    total = count(len(report.findings), "case")
    if not report.query:
        arrived = [f"{total} sent to {report.to}; what arrived is not known: give --query"]
    else:
        arrived = [
            f"{whole} of {total} arrived whole",
            f"{len(report.silent)} were changed or lost although they had been taken",
        ]
    return [
        *arrived,
        f"logs: {report.logs}",
        f"use profile={report.profile}",
        *([f"no profile saves: {', '.join(report.helpless)}"] if report.helpless else []),
        f"the probe's traces are of run {report.run_id}",
    ]

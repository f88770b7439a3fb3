"""`mttp doctor`: what is wrong with a set-up, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, console, print_json, say, working

if TYPE_CHECKING:
    from mttp.cli.doctor.findings import SetupFinding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def doctor(
    *,
    transport: Annotated[
        str | None,
        typer.Option(
            "--transport",
            metavar="URL",
            help="The transport to check; by default those of MTTP_TRANSPORT and OpenTelemetry's variables.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, max=600, help="Limit of each check of an endpoint."
        ),
    ] = 5.0,
    json: Json = False,
) -> None:
    """
    Check the set-up: versions, variables, transports, clock, disk and encoding process.

    Records nothing: an endpoint gets a request without spans, a folder a temporary file.
    Values of secrets are not shown.

    \b
    Examples:
      mttp doctor
      mttp doctor --transport http://localhost:4318
      mttp doctor --transport file://runs/ --json

    \b
    Exit codes:
      0  Everything is fine, perhaps with warnings.
      1  At least one check found an error.
      2  Wrong usage.
    """
    from dataclasses import asdict

    with working("checking"):
        found = _found(transport, timeout)
    errors = sum(finding.status == "error" for finding in found)
    warnings = sum(finding.status == "warning" for finding in found)
    if json:
        print_json({"errors": errors, "warnings": warnings, "checks": list(map(asdict, found))})
    else:
        _show(found)
        say(_conclusion(errors, warnings))
    raise typer.Exit(int(bool(errors)))


def _found(transport: str | None, timeout: float) -> list[SetupFinding]:
    """Run the checks, which import OpenTelemetry; an invalid limit in a variable keeps it from importing."""
    from mttp.cli.doctor.findings import error

    try:
        from mttp.cli.doctor.checks import run
    except ValueError as wrong:
        advice = "correct the variable, or unset it; nothing else is checked: OpenTelemetry can't be imported"
        return [error("variable", str(wrong), advice)]
    return list(run(transport, timeout=timeout))


def _conclusion(errors: int, warnings: int) -> str:
    from mttp.pages.words import counted

    return ", ".join(counted({"error": errors, "warning": warnings})) or "nothing is wrong"


def _show(found: Sequence[SetupFinding]) -> None:
    """Print a table of the findings, with the advice below each."""
    from rich.table import Table

    from mttp.pages.words import printed

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "check", "found"):
        table.add_column(title, overflow="fold")
    for finding in found:
        status = printed(finding.status, style=_STYLES[finding.status])
        table.add_row(status, printed(finding.check), printed(finding.found))
        if finding.advice:
            table.add_row("", "", printed(f"-> {finding.advice}"))
    out = console()
    out.print(table, "")

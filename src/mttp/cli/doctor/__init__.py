"""`mttp doctor`: what is wrong with a set-up, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, print_json, print_page, working

if TYPE_CHECKING:
    from mttp.cli.doctor.findings import SetupFinding

__all__ = ["doctor"]


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

    from mttp.pages.checks import setup_page

    with working("checking"):
        found = _found(transport, timeout)
    errors = sum(finding.status == "error" for finding in found)
    warnings = sum(finding.status == "warning" for finding in found)
    if json:
        print_json({"errors": errors, "warnings": warnings, "checks": list(map(asdict, found))})
    else:
        print_page(setup_page(found))
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

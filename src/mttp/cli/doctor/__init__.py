"""`mttp doctor`: what is wrong with a set-up, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.doctor.findings import SetupFinding
from mttp.cli.output import Json, print_json, print_page, working

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
            "--timeout", metavar="SECONDS", min=0.1, max=600, help="Limit of the request to an endpoint."
        ),
    ] = 5.0,
    json: Json = False,
) -> None:
    """
    Check the set-up: versions, variables, and the folders and endpoints of transports.

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
        findings = _findings(transport, timeout)
    errors = sum(finding.status == "error" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    if json:
        print_json({"errors": errors, "warnings": warnings, "checks": list(map(asdict, findings))})
    else:
        print_page(setup_page(findings))
    raise typer.Exit(int(bool(errors)))


def _findings(transport: str | None, timeout: float) -> list[SetupFinding]:
    """Run the checks, which import OpenTelemetry; an invalid limit in a variable keeps it from importing."""
    try:
        from mttp.cli.doctor.checks import run
    except ValueError as error:
        advice = "correct the variable, or unset it; nothing else is checked: OpenTelemetry can't be imported"
        return [SetupFinding("variable", "error", str(error), advice)]
    return list(run(transport, timeout=timeout))

"""`mttp spec check`: check a reward spec against its schema, code, lock and lint rules."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, SpecFile, Trust, TrustModule, print_json, recorded_episodes, say

__all__ = ["spec_check"]


def spec_check(
    file: SpecFile,
    *,
    no_import: Annotated[
        bool, typer.Option("--no-import", help="Do not import code; signatures and decorators are unchecked.")
    ] = False,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="RUN", help="Check that these episodes recorded its inputs; may be repeated."
        ),
    ] = None,
    trust: Trust = False,
    trust_module: TrustModule = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    json: Json = False,
) -> None:
    """
    Check a reward spec: schema, functions, lock and lint rules.

    Each finding has a rule, a reason, a fix and a line. With --on, an input that the episodes of a run did
    not record is a finding: `mttp rescore` can't score them.

    \b
    Examples:
      mttp spec check specs/gsm8k.yaml
      mttp spec check specs/gsm8k.yaml --no-import --strict
      mttp spec check specs/gsm8k.yaml --on runs/
      mttp spec check specs/gsm8k.yaml --json | jq '.findings[].rule'

    \b
    Exit codes:
      0  Everything is fine.
      1  A finding is an error; with --strict, also a warning.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.pages.specs import finding_lines, findings_document
    from mttp.rewards.lint import input_findings, lint
    from mttp.rewards.spec import RewardSpec

    if on and no_import:
        raise typer.BadParameter("can't be combined with --no-import", param_hint="--on")
    spec = RewardSpec.load(file, trust=trust or trust_module or ())
    findings = lint(spec, imports=not no_import)
    if on:
        findings += input_findings(spec, recorded_episodes(on))
    if json:
        print_json(findings_document(spec, findings))
    else:
        for line in finding_lines(spec, findings, file):
            say(line)
    if any(strict or finding.severity == "error" for finding in findings):
        raise typer.Exit(1)

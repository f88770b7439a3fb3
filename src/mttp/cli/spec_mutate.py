"""`mttp spec mutate`: mutation testing of a reward spec's cases."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, SpecFile, Trust, TrustModule, print_json, print_page, working

__all__ = ["spec_mutate"]


def spec_mutate(
    file: SpecFile,
    *,
    trust: Trust = False,
    trust_module: TrustModule = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a fault is not detected.")] = False,
    json: Json = False,
) -> None:
    """
    Insert faults into a reward spec, and list those that no case detects.

    Inserts one fault at a time: drop a component, negate it, replace its score by the best one, or double
    it; remove a gate; swap two weights. Components are called once for each case.

    \b
    Examples:
      mttp spec mutate specs/gsm8k.yaml
      mttp spec mutate specs/gsm8k.yaml --strict
      mttp spec mutate specs/gsm8k.yaml --json | jq '.survivors[].fault'

    \b
    Exit codes:
      0  Everything is fine.
      1  The cases fail without a fault; with --strict, a fault is not detected.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.pages.scoring import mutation_document, mutation_page
    from mttp.rewards.mutations import mutate
    from mttp.rewards.spec import RewardSpec

    spec = RewardSpec.load(file, trust=trust or trust_module or ())
    with working(f"scoring {len(spec.document.cases):,} cases"):
        mutation = mutate(spec.plan, spec.document.cases)
    if json:
        print_json(mutation_document(spec, mutation))
    else:
        print_page(mutation_page(spec, mutation))
    if mutation.report.failed or (strict and mutation.survivors):
        raise typer.Exit(1)

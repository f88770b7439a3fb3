"""`mttp spec mutate`: faults put into a reward spec, to see whether its cases notice."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, SpecFile, Trust, TrustModule, console, print_json, working

__all__ = ["spec_mutate"]


def spec_mutate(
    file: SpecFile,
    *,
    trust: Trust = False,
    trust_module: TrustModule = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a fault goes unnoticed.")] = False,
    json: Json = False,
) -> None:
    """
    Put faults into a reward spec, and list those that none of its cases notices.

    One fault at a time: a component is dropped, negated, always gives its best, or gives twice as much;
    a gate is removed; two weights are swapped. Components are called once for each case.

    \b
    Examples:
      mttp spec mutate specs/gsm8k.yaml
      mttp spec mutate specs/gsm8k.yaml --strict
      mttp spec mutate specs/gsm8k.yaml --json | jq '.survivors[].fault'

    \b
    Exit codes:
      0  Everything is fine.
      1  The cases fail without any fault; under --strict, a fault goes unnoticed.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.cli.report import trials
    from mttp.rewards.mutations import mutate
    from mttp.rewards.spec import RewardSpec

    spec = RewardSpec.load(file, trust=trust or trust_module or ())
    with working(f"scoring {len(spec.document.cases):,} cases"):
        mutation = mutate(spec.plan, spec.document.cases)
    if json:
        print_json(trials.mutation_document(spec, mutation))
    else:
        console().print(trials.render_mutation(spec, mutation))
    if mutation.report.failed or (strict and mutation.survivors):
        raise typer.Exit(1)

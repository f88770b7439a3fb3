"""`mttp spec diff`: the differences between two reward specs."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, Trust, TrustModule, print_json, print_page, recorded_episodes, working

__all__ = ["spec_diff"]


def spec_diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A reward spec.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar="B", help="The newer reward spec.", show_default=False)],
    *,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="RUN", help="Rescore these episodes with both specs; may be repeated."),
    ] = None,
    trust: Trust = False,
    trust_module: TrustModule = None,
    json: Json = False,
) -> None:
    """
    Compare two reward specs: what changed, and which new version that requires.

    With --on, both specs rescore the recorded inputs of a run's episodes. The report says how many rewards
    change, which verdicts flip and how the order changes, overall and by slice, and why episodes have no
    valid reward.

    \b
    Examples:
      mttp spec diff specs/gsm8k.yaml specs/gsm8k-next.yaml
      mttp spec diff old.yaml new.yaml --on runs/ --json | jq .rescored.all

    \b
    Exit codes:
      0  Everything is fine.
      1  The version of B is lower than its changes require.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.pages.scoring import rescoring_document, rescoring_page
    from mttp.pages.specs import differences_document, differences_page
    from mttp.rewards.difference import differences, is_enough
    from mttp.rewards.rescoring import rescore
    from mttp.rewards.spec import RewardSpec

    earlier, later = (RewardSpec.load(path, trust=trust or trust_module or ()) for path in (before, after))
    changes = differences(earlier, later)
    scored = None
    if on:
        recorded = recorded_episodes(on)
        with working(f"scoring {len(recorded):,} episodes"):
            scored = rescore(recorded, earlier, later)
    if json:
        document = differences_document(earlier, later, changes)
        print_json(document | {"rescored": rescoring_document(scored)} if scored else document)
    else:
        rescored = rescoring_page(scored) if scored else ()
        print_page([*differences_page(earlier, later, changes), *rescored])
    if not is_enough(earlier, later, changes):
        raise typer.Exit(1)

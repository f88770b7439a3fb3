"""`mttp spec show`: a reward spec with its includes."""

from __future__ import annotations

from mttp.cli.output import Json, SpecFile, console, print_json

__all__ = ["spec_show"]


def spec_show(file: SpecFile, *, json: Json = False) -> None:
    """
    Show a reward spec: its components, their shares of the reward, gates and digests.

    The code of the spec is not imported.

    \b
    Examples:
      mttp spec show specs/gsm8k.yaml
      mttp spec show specs/gsm8k.yaml --json | jq .code_sha256

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.cli.rendering.specs import document, render
    from mttp.rewards.spec import RewardSpec

    spec = RewardSpec.load(file)
    if json:
        print_json(document(spec))
    else:
        console().print(render(spec))

"""`mttp spec show`: a reward spec with its includes."""

from __future__ import annotations

from mttp.cli.output import Json, SpecFile, print_json, print_page

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
    from mttp.pages.specs import document, page
    from mttp.rewards.spec import RewardSpec

    spec = RewardSpec.load(file)
    if json:
        print_json(document(spec))
    else:
        print_page(page(spec))

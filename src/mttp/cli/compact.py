"""`mttp compact`: merge the small files of a dataset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mttp.cli.output import Json, print_json, say, working
from mttp.cli.rendering.words import count, visible

__all__ = ["compact"]


def compact(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="A dataset of mttp convert --partition: a folder or s3://BUCKET/PATH.",
            show_default=False,
        ),
    ],
    *,
    json: Json = False,
) -> None:
    """
    Merge the small files of a dataset.

    Each mttp convert --partition adds files; many small ones are slow to read.
    Writes the files of each run again that has several, or whose digests another version of mttp wrote, and
    then removes the old ones. While it runs, no other program may read the dataset or add to it.

    \b
    Examples:
      mttp compact datasets/runs
      mttp compact s3://bucket/runs --json

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, or a dataset that can't be read or written.
    """
    from mttp.reading.engines.compacting import compact as compacted

    with working("compacting"):
        found = compacted(dataset)
    if json:
        print_json({"dataset": dataset, **asdict(found)})
    elif found.runs:
        files = f"{found.files_before:,} to {count(found.files_after, 'file')}"
        what = f"{count(found.spans, 'span')} of {count(found.runs, 'run')}"
        say(f"merged {what} in {visible(dataset)}: {files}")
    else:
        say(f"nothing to merge in {visible(dataset)}: {count(found.files_before, 'file')}")

"""`mttp convert`: convert a recording to another format, a data set for training, or curves."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from mttp import formats
from mttp.cli.conditions import predicate
from mttp.cli.files import Format, writer
from mttp.cli.output import Strict, finish, progress, say
from mttp.errors import ConfigureError
from mttp.model.curves import CURVE_ADDRESSES
from mttp.otlp.whole_files import replacing
from mttp.pages.words import count, visible
from mttp.reading import engines
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.versions import InVersion

if TYPE_CHECKING:
    from mttp.reading.datasets import DatasetFormat

__all__ = ["convert"]


class Dataset(str, Enum):
    """Values of `--as`."""

    SFT = "sft"
    DPO = "dpo"
    GRPO = "grpo"
    VERIFIERS = "verifiers"
    TRL = "trl"
    VERL = "verl"


class Pairs(str, Enum):
    """Values of `--pairs`."""

    PREFERENCES = "preferences"
    GROUPS = "groups"


def convert(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="IN... OUT",
            help="Recordings: files, globs or directories; then the output: .parquet, .jsonl, .jsonl.gz, "
            ".jsonl.zst, or .mttp.jsonl for messages; with --as, .jsonl or .parquet; with --partition, a "
            "folder or s3://BUCKET/PATH; for curves, tensorboard://DIR or wandb://PROJECT.",
        ),
    ],
    *,
    to: Annotated[
        Format | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format of OUT: otlp, messages or parquet; by default, its file name decides.",
        ),
    ] = None,
    as_: Annotated[
        Dataset | None,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="Write the data set that TRL trains on instead: sft (conversations), dpo (pairs of answers) "
            "or grpo (prompts); or episodes that were imported, as their library saves them: verifiers, trl "
            "or verl.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="With --as: only episodes that match, such as outcome=success; as for mttp show.",
        ),
    ] = None,
    min_reward: Annotated[
        float | None,
        typer.Option(
            "--min-reward",
            metavar="REWARD",
            help="With --as sft: only episodes with this reward or more; with --as dpo: only pairs whose "
            "chosen episode has it.",
        ),
    ] = None,
    pairs: Annotated[
        Pairs | None,
        typer.Option(
            "--pairs",
            metavar="SOURCE",
            help="With --as dpo: preferences, or groups (their best and worst episode by reward); by default "
            "preferences, if any was recorded.",
        ),
    ] = None,
    text: Annotated[
        bool,
        typer.Option(
            "--text", help="With --as: take text for messages of the user (observations) and the policy."
        ),
    ] = False,
    partition: Annotated[
        bool,
        typer.Option(
            "--partition",
            help="Add the spans to the dataset OUT: Parquet files by run and date, which are read in part.",
        ),
    ] = False,
    to_version: Annotated[
        str | None,
        typer.Option(
            "--to-version",
            metavar="VERSION",
            help="Write the names of this version of the convention, such as 0.1.0, for OUT's reader.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    strict: Strict = False,
) -> None:
    """
    Convert a recording to another format.

    Writes every span unchanged to one file: Parquet, OTLP JSON lines or messages.
    In Parquet each span is a row, and each attribute of the conventions is a typed column with its name.
    With --to-version, attributes get the names of that version of the convention; what it lacks is printed
    and kept.
    With --as sft, dpo or grpo, writes the conversational data set that TRL trains on, from recorded chats,
    and prints what was left out and why.
    With --as and a library, writes episodes that were imported from its files as that library saves them;
    those of verifiers may also be recorded live.
    With --partition, adds to a dataset in a folder or in object storage, of which summaries and comparisons
    read only what they need.
    With tensorboard:// or wandb:// as OUT, writes the curves of episodes and updates for these tools.

    \b
    Examples:
      mttp convert runs/cartpole.jsonl cartpole.parquet
      mttp convert cartpole.parquet cartpole.jsonl.zst
      mttp convert 'runs/*.jsonl' all.jsonl.gz --overwrite
      mttp convert runs/cartpole.jsonl cartpole.mttp.jsonl
      mttp convert runs/cartpole.jsonl cartpole.jsonl.gz --to-version 0.1.0
      mttp convert runs/grpo.jsonl good.jsonl --as sft --min-reward 0.8
      mttp convert runs/ pairs.jsonl --as dpo --where split=train
      mttp convert runs/ tensorboard://tb
      mttp convert runs/ s3://bucket/runs --partition

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read or has no row for --as.
    """
    options = {"--where": where, "--min-reward": min_reward, "--pairs": pairs, "--text": text}
    wrong = [name for name, value in options.items() if value not in (None, False)]
    if as_ is None and wrong:
        raise typer.BadParameter(f"{wrong[0]} needs --as")
    if as_ is not None and to is not None:
        raise typer.BadParameter("--as can't be combined with --to")
    if partition:
        if as_ is not None or to is not None or to_version is not None or overwrite:
            raise typer.BadParameter(
                "--partition can't be combined with --as, --to, --to-version and --overwrite"
            )
        if len(paths) < 2:
            raise typer.BadParameter("give the dataset OUT")
        _write_partitions(paths[:-1], paths[-1], strict=strict)
        return
    if "://" in paths[-1] and engines.is_address(paths[-1]):
        raise typer.BadParameter(f"{paths[-1]} is the place of a dataset: give --partition")
    is_curves = paths[-1].startswith(CURVE_ADDRESSES)
    if is_curves and (as_ is not None or to is not None or overwrite):
        raise typer.BadParameter(f"{paths[-1]} can't be combined with --as, --to and --overwrite")
    if to_version is not None and (as_ is not None or is_curves):
        raise typer.BadParameter("--to-version can't be combined with --as and curves")
    if len(paths) < 2:
        raise typer.BadParameter("give an output file OUT")
    if is_curves:
        _write_curves(paths[:-1], paths[-1], strict=strict)
    elif as_ is not None and as_.value in formats.WRITABLE:
        if wrong not in ([], ["--where"]):
            raise typer.BadParameter(f"{wrong[-1]} can't be combined with --as {as_.value}")
        _write_records(
            paths[:-1], Path(paths[-1]), as_.value, where=where or (), overwrite=overwrite, strict=strict
        )
    elif as_ is not None:
        _write_dataset(
            paths[:-1],
            Path(paths[-1]),
            as_,
            where=where or (),
            min_reward=min_reward,
            pairs=pairs,
            text=text,
            overwrite=overwrite,
            strict=strict,
        )
    else:
        _convert(paths[:-1], Path(paths[-1]), to, version=to_version, overwrite=overwrite, strict=strict)


def _convert(
    sources: list[str],
    target: Path,
    to: Format | None,
    *,
    version: str | None,
    overwrite: bool,
    strict: bool,
) -> None:
    refused: list[str] = []
    write = writer(target, to, refuse=lambda span, error: refused.append(f"span {span.name!r}: {error}"))
    _check_free(target, overwrite=overwrite)
    with replacing(target, keep_mode=True) as partial, progress(sources) as advance:
        scan = Scan(sources, arrays=True, as_written=True, progress=advance)
        renamed = None if version is None else InVersion(scan, version)
        written = write(partial, renamed or scan)
    say(f"wrote {count(written - len(refused), 'span')} to {target} ({target.stat().st_size:,} bytes)")
    for name, spans in sorted(renamed.lacking.items()) if renamed else ():
        say(f"version {version} has no {name}: {count(spans, 'span')} kept it")
    for reason in refused:
        scan.add_problem("unwritable_span", f"{reason}; it was omitted")
    _print_omitted(scan.problems)
    finish(scan.problems, strict=strict)


def _write_partitions(sources: list[str], place: str, *, strict: bool) -> None:
    from mttp.reading.engines.writing import dataset_writer

    if place in sources:
        raise ConfigureError(f"{place} is also the input: its spans would be there twice")
    target = dataset_writer(place)
    with progress(sources) as advance:
        scan = Scan(sources, arrays=True, as_written=True, progress=advance)
        written = target.write(scan)
    counts = f"{count(written, 'span')} of {count(target.episodes, 'episode')}"
    say(f"added {counts} to {visible(place)} ({count(len(target.files), 'file')})")
    _print_omitted(scan.problems)
    finish(scan.problems, strict=strict)


def _check_free(target: Path, *, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise ConfigureError(f"{target} exists; --overwrite replaces it")


def _write_dataset(
    sources: list[str],
    target: Path,
    format: Dataset,
    *,
    where: Sequence[str],
    min_reward: float | None,
    pairs: Pairs | None,
    text: bool,
    overwrite: bool,
    strict: bool,
) -> None:
    from mttp.reading import read, training_dataset

    holds = predicate(sources, where)
    _check_free(target, overwrite=overwrite)
    with progress(sources) as advance:
        recording = read(sources, progress=advance)
    matching = recording.filter(holds)
    dataset = training_dataset(
        matching,
        cast("DatasetFormat", format.value),
        min_reward=min_reward,
        pairs=None if pairs is None else pairs.value,
        text=text,
    )
    if not dataset.rows:
        reasons = "; ".join(dataset.reasons) or f"none of {count(len(recording), 'episode')} matches"
        advice = "" if text else "; --text takes text for messages"
        raise ConfigureError(f"there is nothing to write as {format.value}: {reasons}{advice}")
    dataset.write(target)
    say(f"wrote {count(len(dataset), 'row')} to {target} ({target.stat().st_size:,} bytes)")
    for reason in dataset.reasons:
        say(reason)
    finish(recording.problems, strict=strict)


def _write_records(
    sources: list[str], target: Path, format: str, *, where: Sequence[str], overwrite: bool, strict: bool
) -> None:
    """Write episodes as the library saves them that they are from."""
    from mttp.reading import read

    holds = predicate(sources, where)
    _check_free(target, overwrite=overwrite)
    with progress(sources) as advance:
        recording = read(sources, progress=advance)
    matching = recording.filter(holds)
    written = formats.write(target, matching, format=format)
    reasons = [
        f"left out {count(number, 'episode')}: {reason}" for reason, number in written.left_out.items()
    ]
    if not written.count:
        why = "; ".join(reasons) or f"none of {count(len(recording), 'episode')} matches"
        raise ConfigureError(f"there is nothing to write as {format}: {why}")
    say(f"wrote {count(written.count, 'episode')} to {target} ({target.stat().st_size:,} bytes)")
    for reason in reasons:
        say(visible(reason))
    finish(recording.problems, strict=strict)


def _write_curves(sources: list[str], address: str, *, strict: bool) -> None:
    from mttp.tables import Database
    from mttp.workflows.curves import write_tables

    with progress(sources) as advance, Database(sources, progress=advance) as database:
        episodes, updates = write_tables(database, address)
    counts = f"{count(episodes, 'episode')} and {count(updates, 'update')}"
    say(f"wrote the curves of {counts} to {visible(address)}")
    finish(database.problems, strict=strict)


def _print_omitted(problems: list[Problem]) -> None:
    """Print what the format can't hold."""
    for problem in problems:
        if problem.kind in ("other_message", "unwritable_span"):
            say(visible(f"mttp: {problem}"), error=True)

"""`mttp message check`: validate each line of a stream of messages."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, print_json, say
from mttp.errors import DecodeError
from mttp.pages.words import count, visible

if TYPE_CHECKING:
    from mttp.mist.messages import MessageLine

__all__ = ["message_check"]


@dataclass
class _CheckCounts:
    """Counts and errors of the lines read so far."""

    messages: int = 0
    """Number of valid messages."""
    types: Counter[str] = field(default_factory=Counter)
    """Number of valid messages by type."""
    with_checksum: int = 0
    """Number of valid messages with a checksum."""
    long_lines: int = 0
    """Number of valid messages longer than the file and stdio readers of the reference accept."""
    errors: list[dict[str, object]] = field(default_factory=list)
    """One object for each invalid line."""


def message_check(
    source: Annotated[str, typer.Argument(metavar="FILE", help="Lines of messages; - is standard input.")],
    *,
    json: Json = False,
) -> None:
    """
    Check messages line by line: envelope, version, checksum and payload.

    Each invalid line is one error, with its line number and, if known, its byte position. An error does not
    stop the check.

    \b
    Examples:
      mttp message check messages.jsonl
      mttp message check - < messages.jsonl
      mttp message check messages.jsonl --json | jq '.errors[].line'

    \b
    Exit codes:
      0  Everything is fine.
      1  A line is not a valid message.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.mist.messages import read_lines  # imports pydantic

    tally = _CheckCounts()
    with _opened(source) as stream:
        for line in read_lines(stream):
            error = _check(line, tally)
            if error and not json:
                say(visible(f"{source}:{error['line']}: {error['kind']}: {error['message']}"))
    if json:
        print_json({"source": source, **vars(tally)})
    else:
        _print_tally(tally)
    if tally.errors:
        raise typer.Exit(1)


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    with Path(source).open("rb") as file:
        yield file


def _check(line: MessageLine, tally: _CheckCounts) -> dict[str, object] | None:
    """Count a line, and return its error, or None if it is valid."""
    try:
        message = line.get()
        message.decode()
    except DecodeError as error:
        tally.errors.append(
            {
                "line": line.number,
                "byte": error.position,
                "kind": type(error).__name__.removesuffix("Error").lower(),
                "message": str(error),
            }
        )
        return tally.errors[-1]
    tally.messages += 1
    tally.types[message.type] += 1
    tally.with_checksum += message.checksum != 0
    tally.long_lines += line.is_long
    return None


def _print_tally(tally: _CheckCounts) -> None:
    say(f"{count(len(tally.errors), 'error')}, {count(tally.messages, 'good message')}")
    for kind, number in sorted(tally.types.items()):
        say(f"  {kind} {number:,}")
    if tally.with_checksum:
        say(f"{count(tally.with_checksum, 'message')} with a valid checksum")
    if tally.long_lines:
        say(
            f"{count(tally.long_lines, 'line')} too long for the reference readers "
            "of files and standard input, which accept 1,048,575 bytes"
        )

"""`mttp message check`: each line of a stream, whether it is a message that may be trusted."""

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
from mttp.cli.report.words import count, visible
from mttp.errors import DecodeError

if TYPE_CHECKING:
    from mttp.mist.messages import MessageLine

__all__ = ["message_check"]


@dataclass
class _CheckCounts:
    """What was found."""

    messages: int = 0
    """Lines that are messages, in which nothing is wrong."""
    types: Counter[str] = field(default_factory=Counter)
    """How many of them there are of each type."""
    with_checksum: int = 0
    """How many of them state a checksum."""
    long_lines: int = 0
    """How many of them are longer than the reference's file and stdio readers take."""
    errors: list[dict[str, object]] = field(default_factory=list)


def message_check(
    source: Annotated[str, typer.Argument(metavar="FILE", help="Lines of messages; - is standard input.")],
    *,
    json: Json = False,
) -> None:
    """
    Check messages line by line: envelope, version, checksum and payload.

    Each line that is no message, or may not be trusted, is one error with its line and, where one can be
    named, its byte; the rest is checked all the same.

    \b
    Examples:
      mttp message check messages.jsonl
      mttp message check - < messages.jsonl
      mttp message check messages.jsonl --json | jq '.errors[].line'

    \b
    Exit codes:
      0  Everything is fine.
      1  A line is no message, or may not be trusted.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.mist.messages import read_lines  # pydantic, which no other command needs

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
    """What is wrong with a line; counts it either way."""
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
        say(f"{count(tally.with_checksum, 'message')} with a checksum, all of them right")
    if tally.long_lines:
        say(
            f"{count(tally.long_lines, 'line')} too long for the stack's own readers "
            "of files and standard input, which take 1,048,575 bytes"
        )

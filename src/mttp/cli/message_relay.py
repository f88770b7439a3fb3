"""`mttp message relay`: forward messages unchanged from one address to another."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from mttp.cli.output import Json, console, print_json, say
from mttp.errors import ConfigureError, SendError
from mttp.pages.words import count, visible

if TYPE_CHECKING:
    from mttp.mist.messages import Message, MessageLine
    from mttp.mist.receiving import Receiver
    from mttp.mist.sending import Sender

__all__ = ["message_relay"]

_STDIO = "mttp+stdio:"


@dataclass
class _RelayCounts:
    """Counts of the messages by result."""

    relayed: int = 0
    """Number of forwarded messages."""
    types: Counter[str] = field(default_factory=Counter)
    """Number of forwarded messages by type."""
    bad: Counter[str] = field(default_factory=Counter)
    """Number of invalid messages by kind of error."""
    lost: Counter[str] = field(default_factory=Counter)
    """Number of valid messages that were not forwarded, by cause."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of rejected requests by cause; no message was read from them."""


def message_relay(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="An address, a file, or - for standard input.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="An address, a file, or - for standard output.")
    ],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new lines at the end of the file.")
    ] = False,
    max_retry_seconds: Annotated[
        float,
        typer.Option(
            "--max-retry-seconds",
            metavar="SECONDS",
            min=0,
            help="How long to retry while TO accepts nothing.",
        ),
    ] = 30.0,
    json: Json = False,
) -> None:
    """
    Forward messages unchanged from one address to another.

    Payloads and unknown fields do not change. Each message is verified; a message that is invalid, or that
    TO rejects, is reported and skipped. The command ends at the end of its file or standard input; a
    listener runs until it is interrupted, and then forwards the messages that it holds.

    Addresses take options. A listener holds capacity=256 messages of at most max_bytes=10MiB each, and
    max_unfinished_bytes=256MiB of unfinished messages; beyond these limits it answers 503. With token=SECRET
    it answers 401 to requests without the token. Listening needs the extra `receive`.

    \b
    Examples:
      mttp message relay messages.jsonl mttp+http://localhost:8700
      mttp message relay mttp+http://127.0.0.1:8700 messages.jsonl
      mttp message relay live.mttp.jsonl mttp+http://localhost:8700 --follow

    \b
    Exit codes:
      0  Everything is fine.
      1  A message was not forwarded.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.mist.receiving import receive  # imports pydantic
    from mttp.mist.sending import dial

    tally, from_, to = _RelayCounts(), _address(source), _address(target)
    options: dict[str, Any] = {"follow": True} if follow else {}
    with (
        receive(from_, on_error=lambda line: _report(line, tally), **options) as receiver,
        dial(to, max_retry_seconds=max_retry_seconds) as sender,
        nullcontext() if from_.startswith(_STDIO) else _interruptible(receiver),
        _progress() as advance,
    ):
        tally.refused = receiver.stats.refused
        if receiver.address.startswith("mttp+http"):
            say(f"receiving at {receiver.address}", error=True)
        _relay(receiver, sender, tally, advance)
    _print(tally, error=to.startswith(_STDIO), json=json)
    if tally.bad or tally.lost:
        raise typer.Exit(1)


def _relay(receiver: Receiver, sender: Sender, tally: _RelayCounts, advance: Callable[[], object]) -> None:
    """Forward messages until the receiver ends or TO stops accepting them."""
    for message in receiver:
        try:
            sender.send(message)
        except BrokenPipeError:
            raise
        except (SendError, OSError) as error:
            cause = error.cause if isinstance(error, SendError) else "write_failed"
            tally.lost[cause] += 1
            say(visible(f"{_named(message)}: {error}"), error=True)
            if cause == "write_failed" or (isinstance(error, SendError) and error.may_pass):
                _give_up(receiver, tally, cause)
        else:
            tally.relayed += 1
            tally.types[message.type] += 1
        advance()


def _give_up(receiver: Receiver, tally: _RelayCounts, cause: str) -> None:
    """Close the receiver, and count the messages that it still holds as lost."""
    receiver.close()
    tally.lost[cause] += sum(1 for _ in receiver)
    say("gave up: later messages were not forwarded", error=True)


def _report(line: MessageLine, tally: _RelayCounts) -> None:
    kind = type(line.error).__name__.removesuffix("Error").lower()
    tally.bad[kind] += 1
    say(visible(f"{line}: {kind}: {line.error}"), error=True)


def _named(message: Message) -> str:
    return f"{message.type} {message.id} of {message.source}"


def _address(address: str) -> str:
    """Return the address of a file name or `-`; return an address unchanged."""
    if address == "-":
        return "mttp+stdio://"
    if address.startswith("chan:"):
        raise ConfigureError(f"{address}: a channel works within one process; give a file or a receiver")
    return address if "://" in address else f"mttp+file://{quote(str(Path(address)))}"


@contextmanager
def _interruptible(receiver: Receiver) -> Iterator[None]:
    """Close the receiver on the first signal, so that held messages are forwarded; the second interrupts."""

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler)
        Thread(target=receiver.close, daemon=True).start()  # this thread may hold a lock that close needs

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress() -> Iterator[Callable[[], object]]:
    """Show the number of forwarded messages on standard error, if it is a terminal."""
    errors = console(error=True)
    if not errors.is_terminal:
        yield lambda: None
        return
    columns = (TextColumn("{task.completed:,.0f} messages relayed"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda: bar.advance(task)


def _print(tally: _RelayCounts, *, error: bool, json: bool) -> None:
    """Print the counts: to standard error if messages go to standard output."""
    if json:
        print_json(vars(tally), error=error)
        return
    say(f"relayed {count(tally.relayed, 'message')}", error=error)
    for kind, number in sorted(tally.types.items()):
        say(f"  {kind} {number:,}", error=error)
    for what, counts in (("bad", tally.bad), ("not forwarded", tally.lost), ("rejected", tally.refused)):
        for kind, number in sorted(counts.items()):
            say(f"  {what}: {kind} {number:,}", error=error)

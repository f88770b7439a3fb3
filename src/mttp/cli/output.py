"""Options, output, progress bars and exit codes that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from mttp.errors import ConfigureError
from mttp.model.printable import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

    from mttp.model.episodes import Episode
    from mttp.otlp.streams import Progress
    from mttp.pages.blocks import Block
    from mttp.reading.problems import Problem
    from mttp.transports.otlp import OtlpTransport

__all__ = [
    "FAIL_ON",
    "Json",
    "Markdown",
    "SpecFile",
    "Sources",
    "Strict",
    "StrictHealth",
    "Trust",
    "TrustModule",
    "Where",
    "console",
    "discard_output",
    "fail",
    "fail_on",
    "failures",
    "finish",
    "is_discarded",
    "print_json",
    "print_page",
    "progress",
    "receiver",
    "recorded_episodes",
    "say",
    "working",
]

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Recordings: files (their rotated parts are included), globs or directories."
    ),
]
StrictHealth = Annotated[
    bool,
    typer.Option("--strict", help="Exit with 1 on failed gradings, recorded faults and problems."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if the recording has problems.")]
SpecFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A reward spec, YAML or JSON.", show_default=False)
]
Trust = Annotated[bool, typer.Option("--trust", help="Let the spec call any code.")]
TrustModule = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-module",
        metavar="MODULE",
        help="Let the spec call code of this module and its submodules; may be repeated.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="CONDITION", help="Only episodes that match, such as env=math; as for mttp show."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown, for a pull request or a CI job summary.")
]

_LARGE = 20_000_000
"""Bytes from which reading shows a progress bar."""
_PIPE_WIDTH = "160"
"""Width of lines where the output is no terminal and `COLUMNS` says nothing."""

_is_discarded = False


def discard_output(*, error: bool = False) -> None:
    """
    Discard what is printed from now on, because the reader of standard output, or error, has closed it.

    The command goes on, since its exit code is its answer.
    """
    global _is_discarded
    _is_discarded |= not error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if error else 1)


def is_discarded() -> bool:
    """Return whether nobody reads standard output any more, so that an endless command may end."""
    return _is_discarded


def say(text: str = "", *, error: bool = False) -> None:
    """Print lines to standard output, or error, with control characters escaped."""
    _print(visible(text, lines=True), error=error)


def print_json(document: object, *, error: bool = False) -> None:
    """Print one JSON document with control characters escaped."""
    from mttp.reading.jsonable import to_json

    _print(visible_json(to_json(document, indent=2)), error=error)


def print_page(page: Iterable[Block | None], *, markdown: bool = False, everything: bool = False) -> None:
    """Print a page for a terminal, or as Markdown; with `everything` also what is folded, and all rows."""
    if markdown:
        from mttp.pages.markdown import markdown as as_markdown

        say(as_markdown(page, everything=everything))
    else:
        from mttp.pages.terminal import render

        console().print(render(page, everything=everything))


def _print(text: str, *, error: bool) -> None:
    stream = sys.stderr if error else sys.stdout
    _replace_unknown_characters(stream)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        discard_output(error=error)


def _replace_unknown_characters(stream: Any) -> None:
    """Make a stream replace characters that its encoding lacks, instead of raising."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def console(*, error: bool = False) -> Console:
    """
    Return a rich console for standard output, or error, without markup and with control characters escaped.

    If the stream is not a terminal, lines are as wide as `COLUMNS` says, without colours and trailing spaces.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Output(Console):
        def on_broken_pipe(self) -> None:
            discard_output(error=error)

        def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*args, **options):
                yield segment if segment.control else segment._replace(text=visible(segment.text, lines=True))

    class Piped(Output):
        def print(self, *objects: Any, **options: Any) -> None:
            with self.capture() as captured:
                super().print(*objects, **options)
            lines = captured.get().removesuffix("\n").split("\n")
            _print("\n".join(line.rstrip(" ") for line in lines), error=error)

    for stream in (sys.stdout, sys.stderr):
        _replace_unknown_characters(stream)
    to_terminal = Output(highlight=False, markup=False, stderr=error)
    if to_terminal.is_terminal:
        return to_terminal
    columns = os.environ.get("COLUMNS", "")
    width = int(columns if columns.isdecimal() and int(columns) else _PIPE_WIDTH)
    return Piped(highlight=False, markup=False, stderr=error, width=width)


@contextmanager
def progress(
    sources: Sequence[str], *, doing: str = "reading", least: int | None = None
) -> Iterator[Progress | None]:
    """
    Show a progress bar on standard error if that is a terminal and `least` bytes or more are read.

    Yields the callback that advances the bar, or None. For a trace store, whose size is unknown, it shows a
    spinner.
    """
    from mttp.reading.sources import size

    errors = console(error=True)
    total = size(sources) if errors.is_terminal else 0
    if errors.is_terminal and not total:  # a trace store, which does not state its size
        with errors.status(doing):
            yield None
        return
    if total < (_LARGE if least is None else least):
        yield None
        return
    from rich.progress import Progress as Bar

    with Bar(console=errors, transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda read: bar.advance(task, read)


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show a spinner on standard error, if that is a terminal."""
    with console(error=True).status(doing):
        yield


def recorded_episodes(paths: Sequence[str]) -> list[Episode]:
    """Read recordings with a progress bar, and return their episodes."""
    from mttp.reading import read

    with progress(paths) as advance:
        return read([*paths], progress=advance).episodes


def receiver(url: str, *, header: Sequence[str] | None = None, profile: str | None = None) -> OtlpTransport:
    """Return a transport to the receiver at `url`; raise ConfigureError for a wrong address or header."""
    from mttp import transports

    if not url.startswith(transports.RECEIVERS):
        raise ConfigureError(
            f"{url!r} is not the address of a receiver; write http://HOST:4318 or grpc://HOST:4317"
        )
    options: dict[str, Any] = {} if profile is None else {"profile": profile}
    pairs = [item.partition("=") for item in header or ()]
    if any(not equals for _, equals, _ in pairs):
        raise ConfigureError("--header is NAME=VALUE, e.g. --header 'authorization=Bearer …'")
    if pairs:
        options["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    return cast("OtlpTransport", transports.open(url, **options))


FAIL_ON: Final = ("gradings", "faults", "problems")
"""Words of `--fail-on` for every recording: failed gradings, recorded faults, problems of the files."""


def fail_on(text: str, *, others: Sequence[str] = (), strict: bool = False) -> frozenset[str]:
    """
    Return the words of `--fail-on`, which are separated by commas; `strict` adds `FAIL_ON`.

    Raises typer.BadParameter for an unknown word, and for `none` beside other words.
    """
    words = [word.strip() for word in text.split(",")]
    known = (*others, *FAIL_ON, "none")
    for word in words:
        if word not in known:
            message = f"{word!r} is not one of {', '.join(known)}"
            raise typer.BadParameter(message, param_hint="--fail-on")
    if "none" in words and len(words) > 1:
        raise typer.BadParameter("none can't be combined with other words", param_hint="--fail-on")
    return frozenset(words) - {"none"} | frozenset(FAIL_ON if strict else ())


def failures(words: Collection[str], *, gradings: int, faults: int, problems: Sequence[Problem]) -> list[str]:
    """Return the reasons why the command fails, one for each of `words` that applies."""
    from mttp.pages.words import count

    reasons = {
        "gradings": f"{count(gradings, 'grading')} failed" if gradings else "",
        "faults": f"{count(faults, 'fault')} recorded" if faults else "",
        "problems": f"the recording has problems, first: {visible(problems[0])}" if problems else "",
    }
    return [reason for word, reason in reasons.items() if reason and word in words]


def fail(reasons: Sequence[str]) -> None:
    """Print the reasons to standard error and exit with 1, if there are any."""
    for reason in reasons:
        say(f"mttp: {reason}", error=True)
    if reasons:
        raise typer.Exit(1)


def finish(problems: Sequence[Problem], *, strict: bool) -> None:
    """Exit with 1 if `strict` and there are problems."""
    fail(failures(["problems"] if strict else [], gradings=0, faults=0, problems=problems))

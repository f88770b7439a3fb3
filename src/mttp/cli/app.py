"""The commands in one program; each is a function of its own file, which is imported when it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from mttp.cli.output import leave_quietly, say
from mttp.errors import MttpError
from mttp.model.printable import visible
from mttp.model.version import __version__

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "demo": "Train a small agent on CartPole, record its episodes, and print what came of it.",
    "show": "Show a recording's episodes, or one in full.",
    "summary": "Sum up a recording in figures.",
    "compare": "Compare two recordings: is the candidate better than the base?",
    "diagnose": "Diagnose a training run: what is wrong with it, and what could not be judged.",
    "gate": "Decide by rules whether a candidate may be promoted.",
    "replay": "Play a recorded episode again in its environment, or compare two episodes.",
    "rescore": "Score recorded episodes by another reward spec.",
    "check": "Check each span of a recording against the registry of the convention.",
    "convert": "Write a recording in another format.",
    "annotate": "Write scores, outcomes, labels and comments into a recording.",
    "push": "Send recorded spans to an OTLP receiver, with the ids and times that they have.",
    "probe": "Send every kind of value to a receiver of traces, read it back, and say what was lost.",
    "schema": "Print the JSON Schema of a message, or of the payload of one type.",
    "eval show": "Show a recording's evaluations: outcomes, scores, pass rates and deltas.",
    "message check": "Check messages line by line: envelope, version, checksum and payload.",
    "message relay": "Pass messages on from one address to another, as they came.",
    "spec check": "Check a reward spec: schema, functions, lock, and the rules of a good reward.",
    "spec show": "Show a reward spec: its components, their shares of the reward, gates and digests.",
    "spec lock": "Lock a reward spec: write versions and digests of it and its includes to FILE.lock.",
    "spec diff": "Compare two reward specs: what changed, and which version that deserves.",
    "spec test": "Score a reward spec's cases, and compare the scores with what they expect.",
    "spec mutate": "Put faults into a reward spec, and list those that none of its cases notices.",
}
"""
What each command does, as the first sentence of its function.

A command names a module here, and the function in it, of one word or two; the first of two names a group.
"""
GROUPS = {
    "eval": "Show evaluations.",
    "message": "Check and relay messages of the MIST protocol.",
    "spec": "Check, show, lock, compare and test reward specs.",
}
_BAD_INPUT = {"spec": 3, "gate": 3}
"""Exit code, by group or command, for input that can't be read; elsewhere it is 2, as for wrong usage."""
_BAD_USAGE = {"gate": 3}
"""Exit code by command for wrong usage; elsewhere it is 2."""


class Command(TyperCommand):
    """A command whose help is printed in panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return list(super().parse_args(ctx, args))
        except TyperException as error:
            error.exit_code = _BAD_USAGE.get(str(self.name), error.exit_code)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - they are always the same
        """The options, then each argument as the help names it."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(param.metavar) for param in arguments)]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - it prints, as typer's own does
        """Print the help."""
        from mttp.cli.help import print_help

        print_help(self, ctx)


class CommandGroup(TyperGroup):
    """Commands that are listed without being imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = "" if self.name == "mttp" else self.name
        listed = {
            last: Command(last, help=sentence)
            for group, last, sentence in ((*_split(name), sentence) for name, sentence in COMMANDS.items())
            if group == own
        }
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        full = f"{'' if self.name == 'mttp' else self.name} {name}".strip()
        return name, _load(full) if full in COMMANDS else command, rest

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments of the group."""
        with _shown_usage():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of the command, and call it."""
        with _shown_usage():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - it prints, as typer's own does
        """Print the help."""
        from mttp.cli.help import print_help

        print_help(self, ctx)


class _WrongUsage(typer.BadParameter):
    """What is wrong with the arguments, in one sentence."""

    def format_message(self) -> str:
        """The sentence."""
        return self.message


@contextmanager
def _shown_usage() -> Iterator[None]:
    """Have what is quoted of wrong arguments act on no terminal."""
    try:
        yield
    except TyperException as error:
        shown = visible(error.format_message(), lines=True)
        if shown == error.format_message():
            raise
        wrong = _WrongUsage(shown, ctx=getattr(error, "ctx", None))
        wrong.exit_code = error.exit_code
        raise wrong from error


def _split(name: str) -> tuple[str, str]:
    group, _, last = name.rpartition(" ")
    return group, last


def _load(name: str) -> Any:
    """The command of that name."""
    group, last = _split(name)
    module = name.replace(" ", "_")
    function = getattr(import_module(f"mttp.cli.{module}"), module)
    alone = typer.Typer(add_completion=False)
    alone.command(last, cls=Command)(_with_messages(function, _BAD_INPUT.get(group or last, 2)))
    return get_command(alone)


def _with_messages(command: Callable[..., Any], bad_input: int) -> Callable[..., Any]:
    """`command`, with an error printed as a sentence instead of a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            leave_quietly()
        except MttpError as error:
            _refuse(str(error), bad_input)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _refuse(f"{where}{error.strerror or error}", bad_input)

    return run


def _refuse(sentence: str, code: int) -> None:
    say(f"mttp: {sentence}", error=True)
    raise typer.Exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"mttp {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="mttp",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def mttp(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """
    Record reinforcement-learning episodes as OpenTelemetry traces, and read them back.

    `mttp COMMAND --help` explains a command, with examples and exit codes.

    \b
    Exit codes:
      0  Everything is fine.
      1  The command found what it looks for: problems, findings, failures.
      2  Wrong usage, or input that can't be read (3 of gate and the spec commands).
    """


for _name, _help in GROUPS.items():
    _more = f"`mttp {_name} COMMAND --help` explains a command, with examples and exit codes."
    _group = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=f"{_help}\n\n{_more}")
    _group.callback()(lambda: None)
    app.add_typer(_group, name=_name)

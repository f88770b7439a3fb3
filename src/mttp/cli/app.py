"""The command-line app; each command is a function in its own module, imported when it is called."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from mttp.cli.output import discard_output, say
from mttp.errors import MttpError
from mttp.model.printable import visible
from mttp.model.version import __version__

__all__ = ["COMMANDS", "app", "module_of"]

COMMANDS = {
    "demo": "Train a small agent on CartPole, record its episodes, and print a summary.",
    "show": "Show the episodes of a recording, or one episode in full.",
    "summary": "Print statistics of a recording.",
    "sql": "Query the tables of a recording by SQL.",
    "compare": "Compare two recordings: is the candidate better than the base?",
    "diagnose": "Diagnose a training run: what is wrong with it, and what could not be judged.",
    "gate": "Decide by rules whether a candidate may be promoted.",
    "tail": "Print one line for each episode of a recording, as it ends.",
    "view": "Show recordings as live pages in a browser, while the training writes them.",
    "plot": "Draw learning curves, with a band over the runs of one name, such as seeds.",
    "report": "Write a recording as one HTML file that opens offline.",
    "mcp": "Serve recordings to a coding agent, by the Model Context Protocol.",
    "replay": "Play a recorded episode again in its environment, or compare two episodes.",
    "rescore": "Score recorded episodes by another reward spec.",
    "check": "Validate each span of a recording against the semantic conventions.",
    "import": "Record the episodes of another library's files.",
    "convert": "Convert a recording to another format.",
    "annotate": "Add scores, outcomes, labels and comments to a recording.",
    "push": "Send recorded spans to an OTLP receiver with their original ids and times.",
    "probe": "Test which values a trace receiver keeps: send, read back, report what was lost.",
    "doctor": "Check the set-up: versions, variables, and the folders and endpoints of transports.",
    "schema": "Print the JSON Schema of a message, or of one payload type.",
    "eval show": "Show the evaluations of a recording: outcomes, scores, pass rates and deltas.",
    "message check": "Check messages line by line: envelope, version, checksum and payload.",
    "message relay": "Forward messages unchanged from one address to another.",
    "spec check": "Check a reward spec: schema, functions, lock and lint rules.",
    "spec show": "Show a reward spec: its components, their shares of the reward, gates and digests.",
    "spec lock": "Write versions and digests of a reward spec and its includes to FILE.lock.",
    "spec diff": "Compare two reward specs: what changed, and which new version that requires.",
    "spec test": "Score the cases of a reward spec, and compare the scores with the expected ones.",
    "spec mutate": "Insert faults into a reward spec, and list those that no case detects.",
}
"""
What each command does: the first sentence of its function's docstring.

The command `a b` is the function `a_b` of the module `a_b`, in the group `a`; `import` is `import_`.
"""
GROUPS = {
    "eval": "Show evaluations.",
    "message": "Check and forward messages of the MIST protocol.",
    "spec": "Check, show, lock, compare and test reward specs.",
}
_BAD_INPUT = {"spec": 3, "gate": 3}
"""Exit codes by group or command for input that can't be read; the default is 2, as for wrong usage."""
_BAD_USAGE = {"gate": 3}
"""Exit codes by command for wrong usage; the default is 2."""


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
        """Return `[OPTIONS]`, then the name of each argument."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(param.metavar) for param in arguments)]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - it prints, as typer's own does
        """Print the help."""
        from mttp.cli.help import print_help

        print_help(self, ctx)


class CommandGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        group_name = "" if self.name == "mttp" else self.name
        listed = {
            last: Command(last, help=sentence)
            for group, last, sentence in ((*_split(name), sentence) for name, sentence in COMMANDS.items())
            if group == group_name
        }
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import and return the command that is called."""
        name, command, rest = super().resolve_command(ctx, args)
        full = f"{'' if self.name == 'mttp' else self.name} {name}".strip()
        return name, _load(full) if full in COMMANDS else command, rest

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments of the group."""
        with _escaped_usage():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of the command, and call it."""
        with _escaped_usage():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - it prints, as typer's own does
        """Print the help."""
        from mttp.cli.help import print_help

        print_help(self, ctx)


class _WrongUsage(typer.BadParameter):
    """Wrong arguments, described in one sentence."""

    def format_message(self) -> str:
        """Return the sentence."""
        return self.message


@contextmanager
def _escaped_usage() -> Iterator[None]:
    """Escape control characters of wrong arguments that an error message quotes."""
    try:
        yield
    except TyperException as error:
        message = visible(error.format_message(), lines=True)
        if message == error.format_message():
            raise
        wrong = _WrongUsage(message, ctx=getattr(error, "ctx", None))
        wrong.exit_code = error.exit_code
        raise wrong from error


def module_of(name: str) -> str:
    """Return the name of a command's module and function."""
    return name.replace(" ", "_") + "_" * iskeyword(name)


def _split(name: str) -> tuple[str, str]:
    group, _, last = name.rpartition(" ")
    return group, last


def _load(name: str) -> Any:
    """Import the command with this full name."""
    group, last = _split(name)
    module = module_of(name)
    errors = functools.partial(_error_messages, _BAD_INPUT.get(group or last, 2))
    with errors():
        function = getattr(import_module(f"mttp.cli.{module}"), module)
    alone = typer.Typer(add_completion=False)
    alone.command(last, cls=Command)(errors()(function))
    return get_command(alone)


@contextmanager
def _error_messages(bad_input: int) -> Iterator[None]:
    """Print errors as one sentence instead of a traceback, and exit."""
    try:
        yield
    except MttpError as error:
        _refuse(str(error), bad_input)
    except ValueError as error:
        if not str(error).startswith("OTEL_"):  # a limit with which OpenTelemetry's SDK can't be imported
            raise
        _refuse(f"{error}; correct the variable, or unset it", bad_input)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            discard_output()  # else the interpreter fails to write the rest at its end
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}", bad_input)


def _refuse(sentence: str, code: int) -> None:
    say(f"mttp: {sentence}", error=True)
    raise typer.Exit(code)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"mttp {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="mttp",
    cls=CommandGroup,
    no_args_is_help=True,
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
      1  The command found problems, findings or failures.
      2  Wrong usage or unreadable input (3 for gate and the spec commands).
    """


for _name, _help in GROUPS.items():
    _more = f"`mttp {_name} COMMAND --help` explains a command, with examples and exit codes."
    _group = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=f"{_help}\n\n{_more}")
    _group.callback()(lambda: None)
    app.add_typer(_group, name=_name)

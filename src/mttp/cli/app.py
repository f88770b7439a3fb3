"""The commands in one program; each is a function of its own file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from mttp import __version__
from mttp.cli.output import leave_quietly
from mttp.errors import MttpError

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    *("demo", "show", "summary", "check", "convert", "annotate", "push", "probe"),
    *("eval show", "message check", "message relay", "schema"),
    *("spec check", "spec show", "spec lock", "spec diff", "spec test", "spec mutate"),
)
"""Each names a module here, and the function in it, of one word or two; the first of two names a group."""
GROUPS = {
    "eval": "Evaluations of a recording.",
    "message": "Messages of the wire, in files and on their way.",
    "spec": "Reward specs: checked, shown, locked, compared, tested.",
}
_BAD_INPUT = {"spec": 3}
"""Exit code, by group, for input that can't be read; elsewhere it is 2, as for wrong usage."""

_EPILOG = (
    "Exit codes: 0 fine, 1 problems under --strict or findings of a check, "
    "2 wrong usage or input that can't be read (3 of the spec commands)."
)

app = typer.Typer(
    name="mttp",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mttp {__version__}")
        raise typer.Exit


@app.callback()
def mttp(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Record reinforcement-learning episodes as OpenTelemetry traces, and read them back."""


def _spoken(command: Callable[..., Any], bad_input: int) -> Callable[..., Any]:
    """`command`, with what goes wrong said in a sentence instead of a traceback."""

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
    print(f"mttp: {sentence}", file=sys.stderr)
    raise typer.Exit(code)


_groups = {
    name: typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=GROUPS[name]) for name in GROUPS
}
for _name in COMMANDS:
    _group, _, _last = _name.rpartition(" ")
    _module = _name.replace(" ", "_")
    _command = getattr(import_module(f"mttp.cli.{_module}"), _module)
    _run = _spoken(_command, _BAD_INPUT.get(_group, 2))
    (_groups[_group] if _group else app).command(_last, epilog=_EPILOG)(_run)
for _name, _typer in _groups.items():
    app.add_typer(_typer, name=_name)

"""The help of a command in panels that fit 80 columns."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["print_help"]

_WIDEST = 100
_PLAIN = (str, int, float, Enum)


def print_help(command: Any, ctx: Any) -> None:
    """
    Print usage, description, arguments, options, commands, and the sections of the help text.

    A paragraph of the help text that begins with `\\b` is a section: its first line is the title.
    """
    console = Console(highlight=False)
    console = Console(highlight=False, width=min(console.width, _WIDEST))
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    prose = [" ".join(text.split()) for text in paragraphs if not text.startswith("\b")]
    sections = [text.removeprefix("\b\n").split("\n") for text in paragraphs if text.startswith("\b")]
    console.print(
        Padding(
            Text.assemble(
                ("Usage: ", "bold"), ctx.command_path, " ", " ".join(command.collect_usage_pieces(ctx))
            ),
            (1, 1, 0, 1),
        )
    )
    for text in prose:
        console.print(Padding(Text(text), (1, 1, 0, 1)))
    console.print()
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [_row(param, kind) for param in params if param.param_type_name == kind]
        _panel(console, title, rows)
    _panel(console, "Commands", _commands(command, ctx))
    for title, *lines in sections:
        _panel(console, title.rstrip(":"), _verbatim(lines))


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _row(param: Any, kind: str) -> tuple[Text, Text]:
    """Return the name and the help of an argument or option."""
    name = Text(_metavar(param) if kind == "argument" else ", ".join(sorted(param.opts, key=len)), "cyan")
    if kind == "option" and not param.is_flag and not param.count:
        name.append(f" {_metavar(param)}", style="yellow")
    return name, Text(" ".join([param.help or "", *_default(param), *_required(param)]))


def _default(param: Any) -> list[str]:
    """Return the default as text; nothing for None, false or an empty text."""
    value = param.show_default if isinstance(param.show_default, str) else param.default
    if not param.show_default or value == "" or value is False or not isinstance(value, _PLAIN):
        return []
    text = value.value if isinstance(value, Enum) else f"{value:g}" if isinstance(value, float) else value
    return [f"[default: {text}]"]


def _required(param: Any) -> list[str]:
    return ["[required]"] if param.required and param.param_type_name == "option" else []


def _commands(command: Any, ctx: Any) -> list[tuple[Text, Text]]:
    """Return the commands of a group, each with the first paragraph of its help."""
    names: Sequence[str] = command.list_commands(ctx) if hasattr(command, "list_commands") else ()
    commands = [command.get_command(ctx, name) for name in names]
    return [(Text(str(each.name), "cyan"), Text((each.help or "").partition("\n\n")[0])) for each in commands]


def _verbatim(lines: Iterable[str]) -> list[tuple[Text]]:
    """Return the lines of a section without their indentation."""
    return [(Text(line),) for line in inspect.cleandoc("\n" + "\n".join(lines)).split("\n")]


def _panel(console: Console, title: str, rows: Sequence[Sequence[RenderableType]]) -> None:
    """Print the rows in a panel; print nothing without rows."""
    if not rows:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=len(rows[0]) > 1)
    for row in rows:
        table.add_row(*row)
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))

"""
The commands as the documentation lists them, from their help.

    python tests/cli/reference.py    writes them into docs/cli.md
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

from mttp.cli.app import COMMANDS, _load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BEGIN = "\n## Options of several commands"
USUAL = (
    "Everything is fine.",
    "Wrong usage, or input that can't be read.",
    "Wrong usage.",
    "The spec can't be read, or can't be used.",
)
"""What exit codes mean for most commands."""


def page() -> str:
    """Return the page with the present commands."""
    commands = {name: _load(name) for name in COMMANDS}
    counts = Counter(
        (option, help_) for command in commands.values() for option, help_ in options(command).items()
    )
    shared = {option: help_ for (option, help_), count in counts.items() if count > 2}
    head = PAGE.read_text().partition(BEGIN)[0].rstrip("\n")
    common = [f"- {option}: {help_}" for option, help_ in shared.items()]
    sections = [described(name, command, shared) for name, command in commands.items()]
    return "\n\n".join([head, "\n".join([BEGIN.strip(), "", *common]), *sections]) + "\n"


def described(name: str, command: Any, shared: dict[str, str]) -> str:
    """Return a command's section; `shared` options are only named."""
    text, _, rest = inspect.cleandoc(command.help).replace("\b", "").partition("\nExamples:")
    arguments = " ".join(param.metavar for param in command.params if param.param_type_name == "argument")
    known = options(command)
    same = [option for option, help_ in known.items() if shared.get(option) == help_]
    rows = [f"- {option}: {help_}" for option, help_ in known.items() if option not in same]
    rows += [f"- {', '.join(same)}"] * bool(same)
    codes = [
        f"Exit code {code}: {quoted(' '.join(words.split()))}"
        for code, words in re.findall(r"^ *(\d+)  (.*(?:\n {4,}\S.*)*)$", rest, re.MULTILINE)
        if words not in USUAL
    ]
    parts = [quoted(text.partition("\n")[0]), "\n".join(rows), "\n".join(codes)]
    return "\n\n".join([f"## `mttp {name} {arguments}".rstrip() + "`", *filter(None, parts)])


def options(command: Any) -> dict[str, str]:
    """Return what each option of a command does, by the option as it is written."""
    return {
        written(param): quoted(" ".join(param.help.split())) + default(param)
        for param in command.params
        if param.param_type_name == "option" and not param.hidden
    }


def written(param: Any) -> str:
    """Return an option with its short form and the name of its value."""
    names = ", ".join(f"`{name}`" for name in sorted(param.opts, key=len))
    return f"{names[:-1]} {param.metavar}`" if param.metavar else names


def default(param: Any) -> str:
    """Return the default of an option, if it is a number or a word that help shows."""
    value = getattr(param.default, "value", param.default)
    shown = isinstance(value, int | float | str) and not isinstance(value, bool) and param.show_default
    return f" Default: {value}." if shown and value != "" else ""


def quoted(text: str) -> str:
    """Return `text` with its options as code."""
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)(?!`)", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(page())

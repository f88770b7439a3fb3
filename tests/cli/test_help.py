"""The help of the commands, and what they import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module

import pytest
from cli import reference
from typer.testing import CliRunner

from mttp.cli.app import COMMANDS, GROUPS, app, module_of

EVERYTHING = ["", *GROUPS, *COMMANDS]


def help_of(command: str, columns: int = 80) -> str:
    """What `--help` prints of a command in a terminal so wide."""
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(
        app, [*command.split(), "--help"], prog_name="mttp"
    )

    assert 0 == result.exit_code, result.output
    return str(result.stdout)


def section(text: str, title: str) -> list[str]:
    """The lines of a panel."""
    _, _, after = text.partition(f"╭─ {title} ─")
    return [line.strip("│").strip() for line in after.partition("╰")[0].splitlines()[1:]]


def docstring(command: str) -> str:
    """The help text in the source."""
    name = module_of(command)
    return inspect.getdoc(getattr(import_module(f"mttp.cli.{name}"), name)) or ""


@pytest.mark.parametrize("command", EVERYTHING)
def test_help_is_readable_at_80_columns(command: str):
    """
    Every line fits, nothing is cut, and no type of Python leaks.
    """
    text = help_of(command)

    assert 80 >= max(map(len, text.splitlines()))
    assert "…" not in text
    assert [] == re.findall(r"<\w+.*?>|\b(?:TEXT|INTEGER|FLOAT|BOOLEAN|ENUM|str|int|float)\b|list\[", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str):
    """
    Each example and each exit code is a line of its panel, as it was written.
    """
    text, written = help_of(command), docstring(command)
    examples = re.findall(rf"^ +(mttp {command}.*)$", written, re.MULTILINE)
    codes = re.findall(r"^ *(\d+  .*)$", written, re.MULTILINE)

    assert examples == section(text, "Examples")
    assert codes == [line for line in section(text, "Exit codes") if line[0].isdigit()]
    assert codes[0].startswith("0  Everything is fine")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_has_the_first_sentence_of_each_command(command: str):
    """
    It is stated where the commands are listed, so that listing imports none of them.
    """
    assert docstring(command).splitlines()[0] == COMMANDS[command]


def test_the_list_of_commands_has_all_of_them():
    """
    In their order, then the groups.
    """
    listed = re.findall(r"^│ ([a-z]+) ", help_of(""), re.MULTILINE)

    assert [name for name in COMMANDS if " " not in name] + list(GROUPS) == listed


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("mttp su", "summary"), ("mttp spec mu", "mutate"), ("mttp summary --w", "--where")],
)
def test_a_shell_completes_commands_and_options(typed: str, expected: str):
    """
    Also those of a command that is not imported yet.
    """
    words = {"_MTTP_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    result = CliRunner().invoke(app, [], prog_name="mttp", env=words)

    assert [expected] == result.stdout.split()


def test_a_misspelt_command_is_reported_what_is_meant():
    """
    With exit code 2.
    """
    result = CliRunner().invoke(app, ["spec", "chek"], prog_name="mttp")

    assert (2, True) == (result.exit_code, "Did you mean 'check'?" in result.output)


def test_the_page_of_commands_is_their_help():
    """
    Each command with its options and exit codes.
    """
    assert reference.PAGE.read_text() == reference.page(), "run tests/cli/reference.py"


def loaded(*arguments: str) -> set[str]:
    """Packages and our own rooms that are imported once the command has run."""
    code = "import sys\nfrom mttp.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = done.stderr.split()
    return {name.partition(".")[0] for name in names} | {
        ".".join(name.split(".")[:3]) for name in names if name.startswith("mttp.")
    }


HEAVY = {"numpy", "scipy", "pyarrow", "opentelemetry", "pydantic", "requests", "urllib3", "grpc", "yaml"}
OF_TYPER = {"pydantic"}
"""What typer itself imports to read arguments."""
HEAVY |= {"msgspec", "wrapt", "asyncio", "gymnasium", "pandas"}


@pytest.fixture
def recording() -> str:
    """A recording that other commands read."""
    import mttp

    with mttp.configure("file://a.jsonl"):
        with mttp.episode() as episode, episode.step() as step:
            step.reward(1.0)
        with mttp.evaluate("suite", tasks=["t"]) as run:
            run.result("t", 1.0, passed=True)
    return "a.jsonl"


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("spec", "--help")])
def test_help_and_version_import_no_command(arguments: tuple[str, ...]):
    """
    They are there at once.
    """
    found = loaded(*arguments)
    names = {f"mttp.cli.{module_of(name)}" for name in COMMANDS}

    assert set() == found & (HEAVY - OF_TYPER | names)


@pytest.mark.parametrize(
    "command", ["demo", "show", "summary", "check", "probe", "eval show", "spec check", "spec test"]
)
def test_help_of_a_command_imports_nothing_heavy(command: str):
    """
    Modules that decode, score or send are imported when the command runs.
    """
    assert set() == loaded(*command.split(), "--help") & (HEAVY - OF_TYPER)


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("show",), {"numpy", "msgspec", "pyarrow"}),
        (("show", "--json"), {"numpy", "msgspec", "pyarrow"}),
        (("eval", "show"), {"numpy", "msgspec", "pyarrow"}),
        (("check",), {"msgspec"}),
        (("convert", "b.jsonl"), {"numpy", "msgspec"}),
    ],
)
def test_a_command_imports_what_it_needs(recording: str, arguments: tuple[str, ...], needed: set[str]):
    """
    No other command, and of the heavy packages only those that decode.
    """
    command = next(name for name in COMMANDS if arguments[: len(name.split())] == tuple(name.split()))
    rest = arguments[len(command.split()) :]
    found = loaded(*command.split(), recording, *rest)
    others = {f"mttp.cli.{module_of(name)}" for name in COMMANDS if name != command}

    assert set() == found & (HEAVY - OF_TYPER - needed | others)


def test_a_summary_does_without_all_of_scipy(recording: str):
    """
    Its statistics take most of a second to import.
    """
    code = (
        "import sys\nfrom mttp.cli import main\ntry: main(['summary', 'a.jsonl'])\nexcept SystemExit: pass\n"
    )
    code += "sys.exit('scipy.stats' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode

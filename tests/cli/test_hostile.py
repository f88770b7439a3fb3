"""No text from elsewhere acts on the terminal, whichever command prints it, and wherever it stands."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

import mttp
from mttp import cli
from mttp.cli.app import COMMANDS, app
from mttp.mist.messages import HealthPing, Message
from mttp.tables import TABLES
from mttp.testing import Behaviour, OtlpReceiver

EVIL = "a\x1b[31mb\x1b]0;title\x07\nc\rd\x08e\x7ff\x9b31mg\x85h\u2028i\u202ej\u2066k\u061cl|`m`<b>n</b>[red]o"
"""Escape sequences, line breaks, C1 codes, marks of direction, and what Markdown and HTML act on."""
NAME = EVIL.replace("/", "")
ACTING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

CODE = """
def told(text):
    raise ValueError(text)
"""


def spec(**more: object) -> str:
    """A reward spec, as JSON, which is YAML as well."""
    component = {"name": "told", "kind": "verifier", "use": "graders:told", "description": EVIL}
    case = {"name": "bad", "kind": "valid", "input": {"text": EVIL}, "expect": {"value": 1.0}}
    known = {"mttp": "reward-spec/1", "name": "toy", "version": "1.0.0", "description": EVIL}
    inputs = {"text": "string"}
    return json.dumps({**known, "inputs": inputs, "components": [component], "cases": [case], **more})


RUNS: dict[str, list[list[str]]] = {
    "demo": [["--episodes", "2", "--out", f"{NAME}.demo.jsonl"]],
    "show": [
        [f"{NAME}.jsonl"],
        [f"{NAME}.jsonl", "--episode", "last", "--full"],
        [f"{NAME}.jsonl", "--json"],
        [f"{NAME}.jsonl", "--where", f"{EVIL}=1"],
        [f"{NAME}.missing"],
    ],
    "sql": [
        *([f"{NAME}.jsonl", table, *options] for table in TABLES for options in ([], ["--csv"], ["--json"])),
        [f"{NAME}.jsonl", f"select '{EVIL}' as \"{EVIL}\""],
        [f"{NAME}.jsonl", EVIL],
    ],
    "summary": [[f"{NAME}.jsonl"], [f"{NAME}.jsonl", "--json"], [f"{NAME}.jsonl", "--markdown", "--strict"]],
    "check": [[f"{NAME}.jsonl"], [f"{NAME}.jsonl", "--json"], [f"{NAME}.jsonl", "--markdown"]],
    "compare": [
        [f"{NAME}.jsonl", f"{NAME}.jsonl"],
        [f"{NAME}.jsonl", f"{NAME}.jsonl", "--json"],
        [f"{NAME}.jsonl", f"{NAME}.jsonl", "--markdown", "--metric", EVIL],
    ],
    "diagnose": [
        [f"{NAME}.jsonl"],
        [f"{NAME}.jsonl", "--json"],
        [f"{NAME}.jsonl", "--markdown", "--quality", EVIL],
        [f"{NAME}.jsonl", "--run", EVIL, "--fail-on", EVIL],
    ],
    "report": [
        [f"{NAME}.jsonl", "--out", f"{NAME}.html"],
        [f"{NAME}.jsonl", "--baseline", f"{NAME}.jsonl", "--out", f"{NAME}.html", "--json"],
        [f"{NAME}.jsonl", "--out", f"{NAME}/none.html", "--allow", EVIL],
        [f"{NAME}.jsonl", "--tokenizer", NAME],
    ],
    "mcp": [[f"{NAME}.missing"]],
    "plot": [
        [f"{NAME}.jsonl", "--out", f"{NAME}.svg"],
        [f"{NAME}.jsonl", "--metric", EVIL],
        [f"{NAME}.jsonl", "--axis", EVIL],
        [f"{NAME}.jsonl", "--by", f"config.{EVIL}", "--json"],
        [f"{NAME}.jsonl", "--list"],
        [f"{NAME}.jsonl", "--out", f"{NAME}/none.png"],
    ],
    "view": [[f"{NAME}.missing"], [f"{NAME}.jsonl", "--host", EVIL], [f"{NAME}.jsonl", "--tokenizer", NAME]],
    "tail": [
        [f"{NAME}.jsonl", "--no-follow"],
        [f"{NAME}.jsonl", "--no-follow", "--json", "--lines", "1"],
        [f"{NAME}.missing"],
    ],
    "gate": [
        [f"{NAME}.jsonl", "--rules", "rules.yaml"],
        [f"{NAME}.jsonl", "--rules", "rules.yaml", "--json", "--github", "--junit", f"{NAME}.xml"],
        [f"{NAME}.jsonl", "--rules", "rules.yaml", "--markdown", "--baseline", f"{NAME}.jsonl"],
        [f"{NAME}.jsonl", "--rules", f"{NAME}.yaml"],
    ],
    "replay": [
        [f"{NAME}.jsonl", "--episode", EVIL],
        [f"{NAME}.jsonl"],
        [f"{NAME}.jsonl", "--steps", "--env", EVIL],
        [f"{NAME}.jsonl", "--against", EVIL, "--json"],
    ],
    "rescore": [
        [f"{NAME}.jsonl", "--spec", f"{NAME}.yaml"],
        [f"{NAME}.jsonl", "--spec", f"{NAME}.yaml", "--json", "--write"],
        [f"{NAME}.jsonl", "--spec", "evil.yaml"],
    ],
    "import": [
        [f"{NAME}.foreign.jsonl", "-o", f"{NAME}.imported.jsonl"],
        [f"{NAME}.foreign.jsonl", "-o", f"{NAME}.again.jsonl", "--json", "--strict"],
        [f"{NAME}.jsonl"],
        [f"{NAME}.missing"],
    ],
    "convert": [
        [f"{NAME}.jsonl", f"{NAME}.dataset", "--partition"],
        [f"{NAME}.jsonl", f"{NAME}.rows.jsonl", "--as", "verl"],
        [f"{NAME}.jsonl", f"{NAME}.parquet"],
        [f"{NAME}.jsonl", f"{NAME}.txt"],
        [f"{NAME}.jsonl", f"{NAME}.sft.jsonl", "--as", "sft", "--text"],
        [f"{NAME}.jsonl", f"{NAME}.dpo.jsonl", "--as", "dpo"],
        [f"{NAME}.jsonl", f"{NAME}.txt", "--as", "grpo", "--text", "--where", f"{EVIL}=1"],
    ],
    "annotate": [
        [f"{NAME}.jsonl", "--from", f"{NAME}.labels"],
        [f"{NAME}.jsonl", EVIL, "--set", f"score={EVIL}"],
        [f"{NAME}.jsonl", "--from", "labels.csv"],
    ],
    "push": [
        [f"{NAME}.jsonl", "--to", f"http://{EVIL}"],
        [f"{NAME}.jsonl", "--to", "HTTP", "--dry-run", "--profile", EVIL],
        [f"{NAME}.jsonl", "--to", "HTTP", "--max-retry-seconds", "0"],
        [f"{NAME}.jsonl", "--to", "GRPC", "--max-retry-seconds", "0", "--restart"],
        [f"{NAME}.jsonl", "--to", "HTTP", "--max-retry-seconds", "0", "--restart", "--json"],
    ],
    "probe": [[f"http://{EVIL}"], ["HTTP", "--query", f"tempo://{EVIL}"], ["HTTP"], ["GRPC", "--json"]],
    "doctor": [
        ["--transport", f"http://{EVIL}"],
        ["--transport", f"file://{NAME}/"],
        ["--transport", f"file://{NAME}.jsonl?suffix={EVIL}", "--json"],
        ["--transport", "HTTP", "--timeout", "1"],
        ["--transport", "GRPC", "--json"],
    ],
    "schema": [[EVIL], []],
    "eval show": [[f"{NAME}.jsonl"], [f"{NAME}.jsonl", "--json"], [f"{NAME}.jsonl", "--tasks"]],
    "message check": [[f"{NAME}.mttp"], [f"{NAME}.mttp", "--json"], [f"{NAME}.missing"]],
    "message relay": [
        [f"{NAME}.mttp", f"{NAME}.relayed"],
        [f"{NAME}.mttp", f"{NAME}.relayed", "--json"],
        [f"{NAME}.mttp", f"mttp+http://127.0.0.1:1/{EVIL}", "--max-retry-seconds", "0"],
        [f"chan://{EVIL}", EVIL],
    ],
    "spec check": [[f"{NAME}.yaml"], [f"{NAME}.yaml", "--json"], ["evil.yaml"]],
    "spec show": [[f"{NAME}.yaml"], [f"{NAME}.yaml", "--json"], ["evil.yaml"]],
    "spec lock": [[f"{NAME}.yaml"], [f"{NAME}.yaml", "--check"]],
    "spec diff": [[f"{NAME}.yaml", "evil.yaml"], ["evil.yaml", f"{NAME}.yaml", "--json"]],
    "spec test": [[f"{NAME}.yaml"], [f"{NAME}.yaml", "--human", f"{NAME}.labels"], ["evil.yaml", "--json"]],
    "spec mutate": [[f"{NAME}.yaml"], ["evil.yaml", "--json"]],
}
"""Arguments of each command; wrong options are added to all."""


def record() -> None:
    """A recording, messages, labels and specs in which every text is hostile, under hostile names."""
    with mttp.configure(f"file://{NAME}.jsonl", run=EVIL, config={EVIL: EVIL}) as session:
        for number in range(2):
            with mttp.episode(env=EVIL, task=EVIL, metadata={EVIL: EVIL}) as episode:
                with episode.step() as step:
                    step.action(EVIL)
                    step.observation(EVIL)
                    step.reward(1.0, components={EVIL: 1.0})
                episode.reward(number, components={EVIL: number})
                episode.end(terminated=True, stop_reason=EVIL)
        with mttp.evaluate(EVIL, tasks=[EVIL]) as evaluation:
            evaluation.result(EVIL, outcome="errored", error=EVIL)
        with suppress(ValueError), mttp.episode(env="failing"):
            raise ValueError(EVIL)
        session.flush()
    foreign = {"task": {"type": EVIL, "data": EVIL}, "env": {"id": EVIL}, "traces": [], "errors": []}
    Path(f"{NAME}.foreign.jsonl").write_text(f"{json.dumps(foreign)}\n{json.dumps([EVIL])}\n{{{EVIL!r}\n")
    lines = [Message.new(EVIL, HealthPing(from_=EVIL), id=EVIL).to_bytes(), EVIL.encode().replace(b"\n", b"")]
    Path(f"{NAME}.mttp").write_bytes(b"\n".join(lines) + b"\n")
    for name in (f"{NAME}.labels", "labels.csv"):
        Path(name).write_text(f'trace_id,score\n"{EVIL}","{EVIL}"\n')
    for name in (f"{NAME}.yaml", "evil.yaml"):
        Path(name).write_text(spec(version=EVIL) if name == "evil.yaml" else spec())
    Path("graders.py").write_text(CODE)
    rule = {"check": EVIL, "max": 0.5}
    Path("rules.yaml").write_text(json.dumps({"safety": [rule], "pins": {"spec": EVIL}, "allow": ["spec"]}))


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver whose answers are hostile."""
    with OtlpReceiver() as opened:
        opened.behave(Behaviour(status=400, message=EVIL), forever=True)
        yield opened


def printed(*arguments: str) -> str:
    """What a command prints and logs to standard output and error, which are those of a pipe."""
    out = TextIOWrapper(BytesIO(), "utf-8")
    error = TextIOWrapper(BytesIO(), "utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(error)  # pytest's own keeps the one away that Python has in the end
    logging.getLogger().addHandler(handler)
    try:
        with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as ended:
            cli.main(arguments)
    finally:
        logging.getLogger().removeHandler(handler)
    told, complained = (cast(BytesIO, stream.detach()).getvalue().decode() for stream in (out, error))
    text = told + complained

    assert "Traceback" not in text, text
    assert ended.value.code in (0, 1, 2, 3)
    if "--json" in arguments and told:
        json.loads(told)
    return text


def commands(group: Any = None, before: str = "") -> Iterator[str]:
    """The full name of each command of the app, whichever way it was added."""
    group = get_command(app) if group is None else group
    for name, command in group.commands.items():
        full = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full


def test_every_command_is_tried() -> None:
    """
    A command that is added needs arguments here, also one that is not in the table.
    """
    assert set(COMMANDS) == set(RUNS) == set(commands())
    assert all(RUNS.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_a_command_prints_acts_on_the_terminal(command: str, receiver: OtlpReceiver) -> None:
    """
    Whatever it is given, and whatever it reads: names of files, recorded text, answers, wrong arguments.
    """
    record()
    known = {"HTTP": receiver.http_address, "GRPC": receiver.grpc_address}
    for arguments in [*RUNS[command], [f"--{EVIL}", EVIL]]:
        text = printed(*command.split(), *(known.get(argument, argument) for argument in arguments))

        assert [] == ACTING.findall(text), (arguments, text)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_takes_what_acts_on_the_terminal(command: str) -> None:
    """
    Hostile text as the value of each option, with arguments that name no file.
    """
    shown = printed(*command.split(), "--help")
    given = re.findall(r"^│ (?:-o, )?(--[\w-]+) +[A-Z]", shown, re.MULTILINE)
    arguments = re.findall(r"^Usage: .*", shown.lstrip(), re.MULTILINE)[0].partition("[OPTIONS]")[2].split()
    for option in given:
        text = printed(*command.split(), *[f"{NAME}.missing" for _ in arguments], option, NAME)

        assert [] == ACTING.findall(text), (option, text)


def test_with_colours_only_colours_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where colours are forced, the sequences that set them are the only ones.
    """
    monkeypatch.setenv("FORCE_COLOR", "1")
    record()
    for arguments in (["show", f"{NAME}.jsonl"], ["summary", f"{NAME}.jsonl"], ["check", f"{NAME}.jsonl"]):
        text = printed(*arguments)

        assert "\x1b[" in text
        assert [] == ACTING.findall(COLOURS.sub("", text))


def test_only_one_module_of_the_commands_prints() -> None:
    """
    So that no text passes by what makes it harmless; the help prints nothing but its own text.
    """
    found = []
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print", "Console"):
                found.append(path.name)

    assert {"__init__.py", "help.py", "output.py"} == set(found)

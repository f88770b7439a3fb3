"""`mttp import` and `import_files`: other libraries' files as a recording."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import mttp
from mttp.cli import app
from mttp.errors import ReadError
from mttp.integrations.importing import find_files, import_files

FILES = Path(__file__).parents[1] / "formats" / "files"


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a directory of its own."""
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    """Run `mttp import`."""
    return CliRunner().invoke(app.app, ["import", *arguments])


def test_a_file_becomes_a_recording_that_every_command_reads() -> None:
    """
    It is named after the file, and the run has no facts of the machine that imported it.
    """
    shutil.copy(FILES / "verifiers.jsonl", "traces.jsonl")
    result = invoke("traces.jsonl")
    recording = mttp.read("traces.imported.jsonl")
    (run,) = recording.runs

    assert 0 == result.exit_code
    assert "traces.jsonl: verifiers traces, 5 episodes" in result.stdout
    assert "not in verifiers traces: reward specs" in result.stdout
    assert 5 == len(recording)
    assert [] == recording.problems
    assert {"imported": [{"file": "traces.jsonl", "format": "verifiers"}]} == run.config
    assert (None, None, {}) == (run.revision, run.host, run.packages)
    assert {"improvement"} == mttp.check("traces.imported.jsonl").levels.keys()
    for command in ("show", "summary"):
        assert 0 == CliRunner().invoke(app.app, [command, "traces.imported.jsonl"]).exit_code


def test_episodes_of_a_group_are_a_group() -> None:
    """
    Its rewards and advantages are those of the file.
    """
    invoke(str(FILES / "verifiers.jsonl"), "-o", "out.jsonl")
    (group,) = mttp.read("out.jsonl").groups

    assert ("g1", 4) == (group.id, group.size)


def test_what_can_t_be_read_is_named_and_counted() -> None:
    """
    The rest is imported; with `--strict` the command exits with 1.
    """
    text = (FILES / "verifiers.jsonl").read_text()
    Path("traces.jsonl").write_text(text + "broken\n[3]\n[]\n")
    Path("notes.json").write_text('{"a": 1}')
    result = invoke(".", "--strict", "--json")
    document = json.loads(result.stdout)
    (file,) = document["files"]

    assert 1 == result.exit_code
    assert ["line 6", "line 7, item 1"] == [one["place"] for one in file["unreadable"]]
    assert ["notes.json"] == document["not_recognized"]
    assert 5 == file["episodes"]
    assert {} == document["faults"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.jsonl"], "missing.jsonl does not exist"),
        (["other.json"], "the format is not known; the formats are verifiers"),
        (["other.json", "--format", "wrong"], "there is no format 'wrong'"),
        (["other.json", "--format", "verifiers"], "no episode in other.json"),
        (["empty"], "no file in empty has a known format"),
        (["traces.jsonl", "-o", "traces.jsonl"], "traces.jsonl exists; --overwrite replaces it"),
        (["traces.jsonl", "-o", "out.csv"], "must end in .jsonl"),
        (["traces.jsonl", "--kind", "x"], "kind 'x' is not one of train, eval, replay"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], reason: str) -> None:
    """
    Nothing is written.
    """
    Path("empty").mkdir()
    Path("other.json").write_text('{"a": 1}')
    shutil.copy(FILES / "verifiers.jsonl", "traces.jsonl")
    before = sorted(Path().rglob("*"))
    result = invoke(*arguments)

    assert 2 == result.exit_code
    assert reason in " ".join(result.stderr.split())
    assert before == sorted(Path().rglob("*"))


def test_an_imported_file_is_refused_with_what_to_do() -> None:
    """
    Reading commands name the command that imports it.
    """
    shutil.copy(FILES / "verifiers.jsonl", "traces.jsonl")

    with pytest.raises(ReadError, match="it holds verifiers traces; `mttp import` records their episodes"):
        mttp.read("traces.jsonl")


def test_files_are_recorded_in_the_open_session() -> None:
    """
    A program imports with the session that it has configured.
    """
    with mttp.configure("memory://", provenance=False) as session:
        (file,) = import_files([(path, name) for path, name in find_files([FILES]) if name == "verifiers"])

    assert 5 == file.episodes == len(mttp.read(session))


def test_episodes_of_verifiers_come_back_unchanged() -> None:
    """
    `mttp convert --as verifiers` writes each record that was imported.
    """
    shutil.copy(FILES / "verifiers.jsonl", "traces.jsonl")
    invoke("traces.jsonl")
    result = CliRunner().invoke(
        app.app, ["convert", "traces.imported.jsonl", "back.jsonl", "--as", "verifiers"]
    )
    before, after = (
        {record["id"]: record for record in map(json.loads, Path(name).read_text().splitlines())}
        for name in ("traces.jsonl", "back.jsonl")
    )

    assert 0 == result.exit_code, result.stderr
    assert "wrote 5 episodes to back.jsonl" in result.stdout
    assert before == after


def test_a_recording_without_episodes_of_verifiers_is_refused() -> None:
    """
    Nothing is written.
    """
    with mttp.configure("file://own.jsonl"), mttp.episode(env="toy"):
        pass
    result = CliRunner().invoke(app.app, ["convert", "own.jsonl", "back.jsonl", "--as", "verifiers"])

    assert 2 == result.exit_code
    assert "left out 1 episode: not one of verifiers" in result.stderr
    assert not Path("back.jsonl").exists()

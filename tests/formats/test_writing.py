"""Formats that are written, too: a file that was imported comes back equal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from completion_rows import TRL, VERL
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import mttp
from mttp import formats
from mttp.cli.app import app
from mttp.errors import ConfigureError, ReadError

CALL = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}]
ROWS: dict[str, dict[str, Any]] = {"trl": TRL, "verl": VERL}
ANSWER = [
    {"role": "assistant", "content": "", "tool_calls": CALL},
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Thanks."},
]
CHANGES: dict[str, list[dict[str, Any]]] = {
    "trl": [
        {"prompt": "2+2?", "completion": "4"},
        {"completion": ANSWER},
        {"completion": []},
        {"correct": None, "short": math.nan, "advantage": math.nan},
        {"prompt": json.dumps(TRL["prompt"])},
    ],
    "verl": [
        {"score": True, "acc": math.inf, "reason": None, "uid": "u1", "extra": {"a": [1, 2]}},
        {"output": '{"answer": 4}', "gts": None},
        {"output": "", "input": ""},
        {"output": "[4]", "score": math.nan},
        {"output": '{"role": "clown"}'},
    ],
}
CASES = [(name, {**row, **change}) for name, row in ROWS.items() for change in ({}, *CHANGES[name])]


def saved(name: str, row: dict[str, Any], path: Path) -> Path:
    """A file of the library with this row."""
    if name == "trl":
        path = path.with_suffix(".parquet")
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        path = path.with_suffix(".jsonl")
        path.write_text(f"{json.dumps(row)}\n")
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    return [json.loads(line) for line in path.read_text().splitlines()]


def command(*arguments: str, code: int = 0) -> str:
    """What a command prints, where it exits so."""
    result = CliRunner().invoke(app, arguments)

    assert code == result.exit_code, result.output
    return result.output


@pytest.mark.parametrize(("name", "row"), CASES)
def test_a_row_comes_back(name: str, row: dict[str, Any]) -> None:
    """
    Through `mttp import` and `mttp convert --as`.
    """
    path = saved(name, row, Path("saved").resolve())
    command("import", str(path), "-o", "runs.jsonl")
    back = Path(f"back{path.suffix}")

    assert "wrote 1 episode" in command("convert", "runs.jsonl", str(back), "--as", name)
    assert repr(rows(path)) == repr([{key: one[key] for key in row} for one in rows(back)])


@pytest.mark.parametrize("name", ROWS)
def test_what_was_read_without_recording_comes_back(name: str, tmp_path: Path) -> None:
    """
    `formats.write` takes what `formats.read` yields.
    """
    path = saved(name, ROWS[name], tmp_path / "saved")
    back = tmp_path / f"back{path.suffix}"
    found = [one for one in formats.read(path) if isinstance(one, mttp.Episode)]

    assert formats.WrittenFile(1, {}) == formats.write(back, found, format=name)
    assert rows(path) == rows(back)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['{"a": 1}', "[]", "[1", '[{"role": "user"}]', "null", "{}"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | TEXTS


@given(
    asked=TEXTS,
    answered=TEXTS,
    score=SCALARS,
    others=st.dictionaries(
        TEXTS.filter(lambda name: name not in VERL and name != "_place"),
        SCALARS | st.lists(SCALARS, max_size=3),
        max_size=3,
    ),
)
def test_any_row_of_verl_comes_back(asked: str, answered: str, score: Any, others: dict[str, Any]) -> None:
    """
    Whatever its texts, its score and its further fields.
    """
    row = {**VERL, "input": asked, "output": answered, "score": score, **others}
    module: Any = formats.format_named("verl")
    value = module.episode({**row, "_place": "line 1"})
    with mttp.configure("memory://", provenance=False) as session:
        session.record(value)
    (read,) = mttp.read(session)

    for one in (value, read):
        back = module.record(one)
        assert row.keys() == back.keys()
        assert all(
            repr(row[name]) == repr(back[name]) or (row[name] == back[name] and row[name] is not True)
            for name in row
        )


def test_what_was_not_read_in_full_is_named_and_left_out() -> None:
    """
    A row whose prompt was not read can't be written, and the others are.
    """
    odd = {**VERL, "input": ["no", "messages"]}
    Path("odd.jsonl").write_text(f"{json.dumps(VERL)}\n{json.dumps(odd)}\n")
    command("import", "odd.jsonl", "-o", "runs.jsonl")
    printed = command("convert", "runs.jsonl", "back.jsonl", "--as", "verl")

    assert [VERL] == rows(Path("back.jsonl"))
    assert "left out 1 episode: input: not read in full when the file was imported" in printed


def test_content_that_was_withheld_is_not_written_as_empty() -> None:
    """
    A recording without content has no rows.
    """
    (value,) = formats.read(saved("verl", VERL, Path("saved").resolve()))
    assert isinstance(value, mttp.Episode)
    with mttp.configure(mttp.Route("file://bare.jsonl", content=False), provenance=False) as session:
        session.record(value)

    assert "withheld" in command("convert", "bare.jsonl", "back.jsonl", "--as", "verl", code=2)
    assert not Path("back.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("back.parquet", "--as", "verl"), "ends in .jsonl"),
        (("back.jsonl", "--as", "verl", "--text"), "--text can't be combined with --as verl"),
        (("back.parquet", "--as", "trl"), "left out 1 episode: not one of trl"),
        (("back.jsonl", "--as", "verl", "--where", "outcome=success"), "none of 1 episode matches"),
    ],
)
def test_what_can_not_be_written_is_refused(arguments: tuple[str, ...], words: str) -> None:
    """
    With the reason, and without a file.
    """
    command("import", str(saved("verl", VERL, Path("saved").resolve())), "-o", "runs.jsonl")

    assert words in " ".join(command("convert", "runs.jsonl", *arguments, code=2).replace("│", "").split())
    assert not Path(arguments[0]).exists()


def test_other_formats_are_not_written(tmp_path: Path) -> None:
    """
    The error names those that are.
    """
    with pytest.raises(ReadError, match="the formats that can are verifiers, trl, verl"):
        formats.write(tmp_path / "x.jsonl", [], format="wandb")
    with pytest.raises(ConfigureError, match=r"ends in \.parquet"):
        formats.write(tmp_path / "x.jsonl", [], format="trl")

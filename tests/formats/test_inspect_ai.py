"""Inspect's logs: `files/inspect.eval` was written by Inspect 0.3.285, with members compressed by zstd."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp import formats
from mttp.cli.app import app
from mttp.errors import ReadError
from mttp.formats import inspect_ai
from mttp.formats.records import UnreadableRecord
from mttp.formats.zip_files import json_member
from mttp.model import Evaluation

FILE = Path(__file__).parent / "files" / "inspect.eval"
HEADER = json_member(FILE, "header.json")
SAMPLE = json_member(FILE, "samples/1_epoch_1.json")


def log(tmp_path: Path, *samples: Any) -> Path:
    """A log as one JSON document."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps({**HEADER, "samples": list(samples)}, indent=2))
    return path


def test_a_log_is_its_samples_and_an_evaluation() -> None:
    """
    The evaluation has a result for each sample, and Inspect's metrics.
    """
    *episodes, evaluation = formats.read(FILE)

    assert "inspect" == formats.recognize(FILE)
    assert all(isinstance(one, mttp.Episode) for one in episodes)
    assert isinstance(evaluation, Evaluation)
    assert [("1", 0), ("1", 1), ("2", 0), ("2", 1)] == [(one.task, one.attempt) for one in episodes]
    assert [(one.task, one.attempt) for one in episodes] == [
        (one.task, one.sample) for one in evaluation.results
    ]
    assert {"includes/accuracy": 0.5, "a/mean": 0.5, "b/mean": 1.0}.items() <= evaluation.metrics.items()
    assert "completed" == evaluation.status


def test_a_document_reads_as_the_archive(tmp_path: Path) -> None:
    """
    The same sample gives the same episode.
    """
    (episode, _) = formats.read(log(tmp_path, SAMPLE))
    first = next(iter(formats.read(FILE)))

    assert first == episode


@pytest.mark.parametrize(
    ("value", "number", "status"),
    [
        ("C", 1.0, "ok"),
        ("I", 0.0, "ok"),
        ("P", 0.5, "ok"),
        ("N", 0.0, "ok"),
        ("yes", 1.0, "ok"),
        ("0.25", 0.25, "ok"),
        (0.75, 0.75, "ok"),
        (True, 1.0, "ok"),
        ("other", None, "missing"),
        ("nan", None, "missing"),
        (float("nan"), None, "missing"),
        (None, None, "missing"),
    ],
)
def test_values_of_scores(value: object, number: float | None, status: str) -> None:
    """
    As Inspect's `value_to_float` reads them; another text is a label and no number.
    """
    reward = inspect_ai.scoring("grader", {"value": value})

    assert (number, status) == (reward.value, reward.status)
    assert reward.label == (value if isinstance(value, str) else None)


def test_a_limit_truncates() -> None:
    """
    The stop reason names it.
    """
    episode = inspect_ai.episode(HEADER["eval"], {**SAMPLE, "limit": {"type": "token", "limit": 10.0}})

    assert (True, False, "token_limit") == (episode.truncated, episode.terminated, episode.stop_reason)


def test_long_texts_that_are_kept_apart_are_in_their_places() -> None:
    """
    A log has them as attachments.
    """
    messages = [
        {"role": "user", "content": "attachment://abc", "source": "input", "id": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "attachment://none"}], "id": "2"},
    ]
    sample = {"id": 7, "epoch": 1, "messages": messages, "attachments": {"abc": "a long text"}}
    (step,) = inspect_ai.episode({}, sample).steps

    assert [{"role": "user", "content": "a long text"}] == step.observation
    assert [{"type": "text", "text": "attachment://none"}] == step.action["content"]


def test_a_wrong_sample_is_named(tmp_path: Path) -> None:
    """
    The others are read.
    """
    found = list(formats.read(log(tmp_path, {"epoch": 1}, 3, SAMPLE)))

    assert [UnreadableRecord, UnreadableRecord, mttp.Episode, Evaluation] == [type(one) for one in found]
    assert "sample 1" == found[0].place


def test_a_damaged_archive_loses_only_what_is_damaged(tmp_path: Path) -> None:
    """
    A member that does not decompress is named; without a header the file is refused.
    """
    with zipfile.ZipFile(FILE) as archive:
        place = archive.getinfo("samples/2_epoch_2.json").header_offset
        header = archive.getinfo("header.json").header_offset
    content = bytearray(FILE.read_bytes())
    content[place + 80 : place + 120] = bytes(40)
    damaged = tmp_path / "damaged.eval"
    damaged.write_bytes(content)
    found = list(formats.read(damaged))

    assert ["samples/2_epoch_2.json"] == [one.place for one in found if isinstance(one, UnreadableRecord)]
    assert 3 == sum(isinstance(one, mttp.Episode) for one in found)

    content[header + 60 : header + 100] = bytes(40)
    damaged.write_bytes(content)

    with pytest.raises(ReadError, match=r"header\.json"):
        list(formats.read(damaged))


def killed_archive(path: Path, *samples: dict[str, Any]) -> None:
    """A log whose process was killed before it wrote the header."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "_journal/start.json", json.dumps({"version": 2, "eval": HEADER["eval"], "plan": {}})
        )
        for number, sample in enumerate(samples):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))


def killed_document(path: Path, *samples: dict[str, Any]) -> None:
    """A log as one document that ends within a sample."""
    document = json.dumps({"version": 2, "eval": HEADER["eval"], "samples": [*samples, SAMPLE]}, indent=2)
    path.write_text(document[:-500])


@pytest.mark.parametrize("write", [killed_archive, killed_document])
def test_a_log_that_was_killed_before_its_header_is_unfinished(write: Any, tmp_path: Path) -> None:
    """
    The samples that had ended are completed episodes, those under way and the evaluation are unfinished;
    a recording of them has an end, with which they are aborted.
    """
    ended = {name: SAMPLE[name] for name in SAMPLE if name not in ("completed_at", "scores")}
    write(tmp_path / "killed", SAMPLE, {**ended, "epoch": 2, "uuid": "b"})
    read = [one for one in formats.read(tmp_path / "killed") if not isinstance(one, UnreadableRecord)]
    assert ["completed", "unfinished", "unfinished"] == [one.status for one in read]

    imported = CliRunner().invoke(app, ["import", "killed", "--output", "imported.jsonl"])
    assert 0 == imported.exit_code, imported.output
    recording = mttp.read("imported.jsonl")
    first, second = sorted(recording, key=lambda episode: episode.attempt or 0)

    assert ("completed", "aborted") == (first.status, second.status)
    assert first.return_ is not None
    assert second.return_ is None
    assert ["aborted"] == [evaluation.status for evaluation in recording.evals]


@pytest.mark.parametrize("name", sorted(SAMPLE.keys() - {"id"}))
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], {"a": None}])
def test_a_field_of_another_type_is_left_out(name: str, value: object) -> None:
    """
    The episode is read.
    """
    episode = inspect_ai.episode(HEADER["eval"], {**SAMPLE, name: value})

    assert "1" == episode.task


def test_another_archive_is_not_a_log(tmp_path: Path) -> None:
    """
    Its format is not known.
    """
    path = tmp_path / "other.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", "{}")
    shutil.copy(path, tmp_path / "copy.zip")

    assert formats.recognize(path) is None

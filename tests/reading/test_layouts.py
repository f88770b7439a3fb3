"""Recordings in other layouts than one document a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mttp


@pytest.mark.parametrize("layout", ["list", "indented", "indented list"])
@pytest.mark.parametrize("before", ["", "{}\n"])
def test_a_recording_may_be_a_list_or_indented(layout: str, before: str, tmp_path: Path) -> None:
    """
    It has the same episodes and figures.
    """
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    with mttp.configure(f"file://{path}"):
        for _ in range(3):
            with mttp.episode(env="toy") as episode, episode.step() as step:
                step.observation({"text": "}]"})
                step.reward(1.0)
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    indent = None if layout == "list" else 2
    listed = [documents] if "list" in layout else documents
    other.write_text(before + "\n".join(json.dumps(one, indent=indent) for one in listed))
    recording = mttp.read(other)

    assert (3, []) == (len(recording.episodes), recording.problems)
    assert mttp.read(path).episodes == recording.episodes
    assert [1.0] * 3 == mttp.summarize(other).returns.tolist()

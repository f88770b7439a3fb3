"""Digests of row groups: figures and summaries of Parquet files without reading their spans."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from reading.recorded_kinds import every_kind, every_way
from reading.test_summary import plain_document
from reading.traces import episode, foreign, part, write
from tables.test_figures import of_spans, of_values

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading import group_digest, parquet
from mttp.semconv import attributes as a


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose spans are read."""
    found: list[Path] = []
    original = parquet._blocks

    def noted(path: Path, *args: Any, **kwargs: Any) -> Any:
        found.append(path)
        return original(path, *args, **kwargs)

    monkeypatch.setattr(parquet, "_blocks", noted)
    return found


def parquet_of(spans: list[SpanRecord], name: str = "a.parquet") -> Path:
    """A Parquet file of these spans."""
    parquet.write(name, spans)
    return Path(name)


@pytest.fixture
def of_everything(session: mttp.Session) -> list[SpanRecord]:
    """Episodes that were recorded in every way."""
    return every_way(session)


@pytest.mark.parametrize("rows", [7, 50, 20_000])
@pytest.mark.parametrize("order", ["written", "shuffled"])
def test_figures_and_summary_equal_those_of_the_lines(
    of_everything: list[SpanRecord], rows: int, order: str, monkeypatch: pytest.MonkeyPatch
):
    """
    However many row groups an episode spans, with repeated spans.
    """
    monkeypatch.setattr(parquet, "_GROUP_ROWS", rows)
    spans = [*of_everything, *of_everything[::9]]
    if order == "shuffled":
        random.Random(rows).shuffle(spans)
    lines, path = write("a.jsonl", spans), parquet_of(spans)

    assert of_values(lines) == of_spans(path)
    documents = [plain_document(mttp.summarize(source)) for source in (lines, path)]
    assert documents[0] | {"sources": []} == documents[1] | {"sources": []}


def test_the_spans_are_not_read(tmp_path: Path, blocks: list[Path]):
    """
    For a study or a summary the digests suffice.
    """
    spans = every_kind(tmp_path)
    lines = write("a.jsonl", spans)
    expected = of_values(lines)
    path = parquet_of(spans)

    assert expected == of_spans(path)
    assert [] == blocks
    mttp.read(path)
    assert [path] == blocks


def test_a_digest_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch, blocks: list[Path]):
    """
    The spans are read instead.
    """
    spans = [*episode(0, components={"x": 1.0}), *episode(1)]
    with monkeypatch.context() as patched:
        patched.setattr(group_digest, "VERSION", "0")
        path = parquet_of(spans)
    found = of_spans(path)

    assert [path] == blocks
    assert of_values(path) == found
    assert 2 == len(found)


def test_parts_in_several_files_are_merged():
    """
    Also if the part of another process comes first, or an episode is in both files.
    """
    own, other = parquet_of([*episode(0), *episode(1)]), parquet_of(part(0, rewards=[1.0]), "b.parquet")
    again = parquet_of(episode(0), "c.parquet")
    begun = write("d.jsonl", episode(1)[:1])
    for paths in ([own, other], [other, own], [own, again], [begun, own], [other, begun, own, again]):
        assert of_values(paths) == of_spans(paths)


def test_problems_are_those_of_the_spans():
    """
    Values of a wrong type, lost spans and unfinished episodes.
    """
    spans = [*episode(0, **{a.EPISODE_RETURN: "much"}), *episode(1)[:-1], foreign(2)]
    path = parquet_of(spans)
    expected = sorted((problem.kind, problem.message) for problem in mttp.read(path).problems)

    assert expected == sorted((problem.kind, problem.message) for problem in mttp.summarize(path).problems)
    assert ["unfinished_episode", "wrong_type"] == [kind for kind, _ in expected]


def test_a_group_that_no_digest_can_hold_is_read():
    """
    An integer beyond 64 bits in an attribute of another library.
    """
    scope = mttp.model.spans.Scope(name="other", attributes={"huge": 2**70})
    spans = [*episode(0), *episode(1, scope=scope)]

    assert b"" == group_digest.encode(spans)
    path = parquet_of(spans)
    assert of_values(path) == of_spans(path)

"""Rows of episodes whose spans arrive bit by bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from reading.recorded_kinds import every_way
from reading.traces import episode, part, trace_id, write
from tables.test_figures import plain

import mttp
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.tables.figures import read_figures
from mttp.tables.growing import GrowingEpisodes


@pytest.fixture
def growing() -> Iterator[GrowingEpisodes]:
    """No spans yet."""
    rows = GrowingEpisodes()
    yield rows
    rows.close()


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_all_spans(growing: GrowingEpisodes, session: mttp.Session, seed: int):
    """
    In any order and any pieces, with repeated spans, parts of other processes and late facts.
    """
    spans = every_way(session)
    shuffled = random.Random(seed)
    spans = [*spans, *spans[::7]]
    shuffled.shuffle(spans)
    path = write("a.jsonl", spans)
    latest = {}
    while spans:
        piece = spans[: shuffled.randint(1, 40)]
        del spans[: len(piece)]
        growing.add(piece)
        latest |= {row.trace_id: row for row in growing.changed()}
    ended = [row for row in read_figures(path) if row.status != "unfinished"]

    assert plain(ended) == plain([row for row in latest.values() if row.status != "unfinished"])


def test_an_episode_has_a_row_once_its_process_ended_it(growing: GrowingEpisodes):
    """
    Not before its last step arrived, and again after another process's part did, or an annotation.
    """
    spans, theirs = episode(0), part(0, rewards=[1.0])
    note = SpanRecord(
        trace_id="e" * 32,
        span_id="e" * 16,
        name=names.ANNOTATE,
        start_time=1,
        end_time=1,
        attributes={
            a.RUN_ID: "r",
            a.ANNOTATION_TARGET_TRACE_ID: trace_id(0),
            a.ANNOTATION_KIND: "outcome",
            a.ANNOTATION_VALUE: "failure",
        },
    )
    rows = []
    for piece in (spans[1:], [], spans[:1], theirs, [note]):
        growing.add(piece)
        rows.append([(row.length, row.success) for row in growing.changed()])

    assert [[], [], [(2, True)], [(51, True)], [(51, False)]] == rows


def test_rows_are_in_the_order_of_their_last_spans(growing: GrowingEpisodes):
    """
    Which is that in which episodes ended.
    """
    growing.add([*episode(0)[:-1], *episode(1), *episode(0)[-1:]])

    assert [trace_id(1), trace_id(0)] == [row.trace_id for row in growing.changed()]


def test_forgotten_episodes_take_no_room(growing: GrowingEpisodes):
    """
    Others keep their spans.
    """
    growing.add([*episode(0), *episode(1)[:-1]])
    growing.changed()
    growing.forget([trace_id(0)])
    growing.add([*episode(0)[-1:], *episode(1)[-1:]])

    assert [trace_id(1)] == [row.trace_id for row in growing.changed()]


def test_tail_shows_an_episode_once(monkeypatch: pytest.MonkeyPatch):
    """
    Also where its spans repeat; a large file is taken in pieces.
    """
    from mttp.cli.tail import _EndedEpisodes

    write("a.jsonl", episode(0))
    ended = _EndedEpisodes()
    counts = []
    for _ in range(2):
        ended.add([*mttp.scan("a.jsonl")])
        counts.append(len(ended.take()))
    ended.close()

    assert ([1, 0], 1) == (counts, ended.count)

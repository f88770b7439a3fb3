"""Labels over HTTP: what the server records, whose requests it accepts, and which errors it answers with."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from viewing.recorded import HOSTILE
from viewing.test_server import ask

import mttp
from mttp.cli.files import LateFactsFile
from mttp.viewing.labeling import Labeling
from mttp.viewing.live import LivePages
from mttp.viewing.server import serve


class Viewer:
    """A server that takes labels."""

    def __init__(self, by: str = "ada", **options: Any) -> None:
        self.pages = LivePages(["runs"], keep_annotations=True)
        self.pages.start()
        eventually(lambda: self.pages.is_read and len(self.pages) > 0)
        self.file = LateFactsFile(Path("runs"))
        self.labels = Labeling(self.pages, self.file.add, by=by, seed=1, **options)
        self.server = serve(self.pages, "127.0.0.1", 0, labels=self.labels)
        self.address = f"http://127.0.0.1:{self.server.port}"

    def close(self) -> None:
        self.server.close()
        self.pages.close()

    def send(self, path: str = "", /, **body: Any) -> Any:
        """The answer to a request of a page; raises AssertionError if it is refused."""
        status, answer, _ = ask(f"{self.address}/api/labels{path}", body, **self.headers)
        assert 200 == status, answer
        return json.loads(answer)

    def get(self, path: str = "") -> Any:
        status, answer, _ = ask(f"{self.address}/api/labels{path}")
        assert 200 == status, answer
        return json.loads(answer)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Mttp-Token": self.labels.token}


def record(groups: int = 5) -> list[str]:
    """Episodes of groups of four, with rewards from 0; their trace ids in order."""
    with mttp.configure("file://runs/run.jsonl"):
        for number in range(groups):
            with mttp.group(id=f"g{number}") as group:
                for member in range(4):
                    with mttp.episode(env="e", group=group) as episode:
                        episode.reward(float(4 * number + member))
    return [episode.trace_id for episode in mttp.read("runs")]


@pytest.fixture
def ids() -> list[str]:
    return record()


@pytest.fixture
def viewer(ids: list[str]) -> Iterator[Viewer]:
    found = Viewer()
    yield found
    found.close()


def test_a_label_is_a_late_fact_of_a_person(viewer: Viewer, ids: list[str]) -> None:
    """
    It says how its episode was chosen, is on the disk at once, and conforms.
    """
    drawn = viewer.send("/next")
    viewer.send(episode=drawn["episode"], draw=drawn["draw"], score=0.75)
    viewer.send(episode=ids[0], note=HOSTILE)
    annotations = mttp.read("runs").annotations
    score, note = annotations

    assert ("score", 0.75, "ada", drawn["selection"]) == (score.kind, score.value, score.by, score.selection)
    assert (pytest.approx(drawn["probability"]), 20) == (score.selection_probability, score.candidates)
    assert score.reward is not None
    assert ("ada", "human") == (score.reward.grader, score.reward.grader_kind)
    assert ("comment", HOSTILE, "hand", None) == (
        note.kind,
        note.value,
        note.selection,
        note.selection_probability,
    )
    assert [] == list(mttp.check("runs"))


def test_a_label_of_an_episode_can_be_revised_and_undone(viewer: Viewer, ids: list[str]) -> None:
    """
    Each is a revision, and all are kept; the probability of the draw stays.
    """
    drawn = viewer.send("/next")
    episode = drawn["episode"]
    viewer.send(episode=episode, draw=drawn["draw"], score=1)
    viewer.send(episode=episode, score=0.25)

    assert 0.25 == viewer.get(f"/{episode}")["score"]
    assert (episode, 1) == (viewer.send("/undo")["episode"], viewer.get(f"/{episode}")["score"])
    last = max(mttp.read("runs").annotations, key=lambda one: one.order)
    assert pytest.approx(drawn["probability"]) == last.selection_probability
    assert viewer.send("/undo")["score"] is None
    recording = mttp.read("runs")
    assert "missing" == next(one for one in recording if one.trace_id == episode).scores["ada"].status
    assert 4 == len(recording.annotations)
    status, answer, _ = ask(f"{viewer.address}/api/labels/undo", {}, **viewer.headers)
    assert (400, True) == (status, b"no label of this view to undo" in answer)


def test_notes_are_revised_and_undone(viewer: Viewer, ids: list[str]) -> None:
    """
    Line breaks included.
    """
    viewer.send(episode=ids[0], note="one\ntwo")
    viewer.send(episode=ids[0], note="x" * 10_000)

    assert "one\ntwo" == viewer.send("/undo")["note"]
    assert "" == viewer.send("/undo")["note"]


def test_the_best_of_a_group_is_a_preference(viewer: Viewer, ids: list[str]) -> None:
    """
    Over all others; a second choice takes the first one back, and an undo restores it.
    """
    from mttp.model.draws import preferences

    viewer.send(episode=ids[1], best=True)
    viewer.send(episode=ids[2], best=True)
    (found,) = preferences(mttp.read("runs").annotations)
    assert (ids[2], (ids[0], ids[1], ids[3])) == (found.episode, found.rejected)

    viewer.send("/undo")
    (found,) = preferences(mttp.read("runs").annotations)
    assert (ids[1], True) == (found.episode, viewer.get(f"/{ids[1]}")["best"])
    assert [] == list(mttp.check("runs"))


def test_the_queue_has_tails_disagreements_and_random_episodes(viewer: Viewer, ids: list[str]) -> None:
    """
    No episode twice; after the last one there is none.
    """
    found = []
    while (drawn := viewer.send("/next"))["episode"] is not None:
        viewer.send(episode=drawn["episode"], draw=drawn["draw"], score=0.5)
        found.append(drawn)

    assert sorted(ids) == sorted(one["episode"] for one in found)
    assert [*range(20, 0, -1)] == [one["candidates"] for one in found]
    assert {"random", "tail"} == {one["selection"] for one in found}
    tails = {one["episode"] for one in found if one["selection"] == "tail"}
    assert tails <= {*ids[:2], *ids[-2:]}


def test_disagreements_are_drawn_and_listed(viewer: Viewer, ids: list[str]) -> None:
    """
    By ranks among scored episodes: the scale of a grader is its own.
    """
    with mttp.configure("file://runs/bob.jsonl"):
        for place, episode in enumerate(ids[4:12]):
            mttp.score(episode, [9.0, 1, 2, 3, 4, 5, 6, 0][place], grader="bob", grader_kind="human")
    eventually(lambda: len(viewer.pages.annotations) == 8)
    drawn = [viewer.labels.next() for _ in range(60)]
    said = viewer.get()

    assert {ids[4], ids[11]} == {one["episode"] for one in drawn if one["selection"] == "disagreement"}
    assert {ids[4], ids[11]} == {one["episode"] for one in said["disagreements"]}
    (bob,) = said["labels"]
    assert ("bob", "e", 8, {}) == tuple(bob[key] for key in ("by", "env", "labels", "left_out"))
    assert 28 == bob["agreement"]["pairs"]


def test_without_a_random_share_labels_stand_for_no_rate(ids: list[str]) -> None:
    """
    They are left out and counted, since most episodes could not be drawn.
    """
    viewer = Viewer(random_share=0.0)
    try:
        for _ in range(3):
            drawn = viewer.send("/next")
            viewer.send(episode=drawn["episode"], draw=drawn["draw"], score=1)
        (ada,) = viewer.get()["labels"]
        assert (0, {"tail": 3}, None, None) == tuple(
            ada[key] for key in ("labels", "left_out", "mean", "agreement")
        )
    finally:
        viewer.close()


def test_pages_of_other_sites_can_neither_label_nor_read(viewer: Viewer, ids: list[str]) -> None:
    """
    Nor a request without the token of this server, or that a form could send.
    """
    label = {"episode": ids[0], "score": 1}
    url = f"{viewer.address}/api/labels"
    refused = [
        ({}, 403),
        ({"X-Mttp-Token": "wrong"}, 403),
        (viewer.headers | {"Origin": "https://elsewhere.example"}, 403),
        (viewer.headers | {"Origin": "null"}, 403),
        (viewer.headers | {"Sec-Fetch-Site": "cross-site"}, 403),
        (viewer.headers | {"Sec-Fetch-Site": "same-site"}, 403),
        (viewer.headers | {"Host": "elsewhere.example"}, 403),
        (viewer.headers | {"Content-Type": "text/plain"}, 415),
        (viewer.headers | {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (viewer.headers | {"Content-Type": ""}, 415),
    ]
    for headers, expected in refused:
        assert expected == ask(url, label, **headers)[0], headers
    assert 403 == ask(f"{url}/next", {}, Origin=viewer.address)[0]
    assert 403 == ask(f"{url}/undo", {})[0]
    assert 403 == ask(url, None, Origin="https://elsewhere.example")[0]
    assert [] == mttp.read("runs").annotations
    assert 200 == ask(url, label, **viewer.headers, Origin=viewer.address)[0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"score": 2}, "<= 1.0"),
        ({"score": "1"}, "$.score"),
        ({"score": True}, "$.score"),
        ({}, "give one of score, note and best"),
        ({"score": 1, "note": "x"}, "give one of score, note and best"),
        ({"note": "x" * 10_001}, "<= 10000"),
        ({"note": 3}, "$.note"),
        ({"score": 1, "episode": "abc"}, "$.episode"),
        ({"score": 1, "episode": "0" * 32}, "there is no episode"),
        ({"score": 1, "draw": "other"}, "is not a draw of episode"),
        ({"score": 1, "by": "eve"}, "`by`"),
    ],
)
def test_a_bad_label_is_named(viewer: Viewer, ids: list[str], change: dict[str, Any], named: str) -> None:
    """
    Nothing is written.
    """
    body = {"episode": ids[0]} | change
    status, answer, _ = ask(f"{viewer.address}/api/labels", body, **viewer.headers)

    assert (400, True) == (status, named in json.loads(answer)["error"]), answer
    assert viewer.file.path is None


def test_an_episode_without_others_has_no_best(viewer: Viewer) -> None:
    """
    The error says why.
    """
    with mttp.configure("file://runs/more.jsonl"), mttp.episode() as episode:
        pass
    eventually(lambda: len(viewer.pages) == 21)
    body = {"episode": episode.trace_id, "best": True}
    status, answer, _ = ask(f"{viewer.address}/api/labels", body, **viewer.headers)

    assert (400, True) == (status, b"is in no group" in answer)


def test_two_viewers_lose_no_label(viewer: Viewer, ids: list[str]) -> None:
    """
    Each has a file of its own, and knows the other's labels a moment later; the file of the run grows.
    """
    other = Viewer(by="bob")

    def label(one: Viewer) -> None:
        for place, episode in enumerate(ids):
            one.send(episode=episode, score=place / 20)

    try:
        threads = [threading.Thread(target=label, args=(one,)) for one in (viewer, other)]
        for thread in threads:
            thread.start()
        with mttp.configure("file://runs/later.jsonl"):
            for _ in range(5):
                with mttp.episode(env="e") as episode:
                    episode.reward(0.5)
                time.sleep(0.01)
        for thread in threads:
            thread.join()
        eventually(lambda: len(other.pages.annotations) == 40 and len(other.pages) == 25)

        assert viewer.file.path != other.file.path
        assert 40 == len(mttp.read("runs").annotations)
        assert ["ada", "bob"] == [one["by"] for one in other.get()["labels"]]
        assert 25 == other.send("/next")["candidates"]
    finally:
        other.close()


def test_a_view_does_not_take_labels_unless_asked(ids: list[str]) -> None:
    """
    There is no such address, and the page has no token.
    """
    pages = LivePages(["runs"])
    server = serve(pages, "127.0.0.1", 0)
    try:
        assert 404 == ask(f"http://127.0.0.1:{server.port}/api/labels", {"episode": ids[0], "score": 1})[0]
        assert b"mttp-labels" not in ask(f"http://127.0.0.1:{server.port}/")[1]
    finally:
        server.close()
        pages.close()


def test_a_persons_score_is_not_held_against_itself(ids: list[str]) -> None:
    """
    Where a program recorded no reward, the score of a person is the episode's.
    """
    with mttp.configure("file://alone/run.jsonl"):
        for _ in range(3):
            with mttp.episode(env="e"):
                pass
    episodes = [episode.trace_id for episode in mttp.read("alone")]
    pages = LivePages(["alone"], keep_annotations=True)
    pages.start()
    try:
        eventually(lambda: pages.is_read and len(pages) == 3)
        labels = Labeling(pages, LateFactsFile(Path("alone")).add, by="ada")
        for place, episode in enumerate(episodes):
            labels.label(episode, score=place / 2)
        eventually(lambda: len(pages.annotations) == 3)
        (found,) = labels.overview()["labels"]
        assert found["agreement"] is None
    finally:
        pages.close()


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "run.jsonl.zst"])
def test_labels_stand_beside_a_file(name: str) -> None:
    """
    As one of its parts, compressed like it.
    """
    with mttp.configure(f"file://{name}"), mttp.episode() as episode:
        pass
    file = LateFactsFile(Path(name))
    pages = LivePages([name], keep_annotations=True)
    pages.start()
    try:
        eventually(lambda: pages.is_read and len(pages) == 1)
        labels = Labeling(pages, file.add, by="ada")
        labels.label(episode.trace_id, score=1)
        labels.label(episode.trace_id, note="fine")
        eventually(lambda: len(pages.annotations) == 2)
        assert 2 == len(mttp.read(name).annotations)
    finally:
        pages.close()

"""Groups, updates and statements as they show on the episodes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reading.traces import SECOND, START, episode, run, trace_id, write
from rich.console import Console, RenderableType
from specimen import EVERYTHING

import mttp
from mttp import Reward
from mttp.codec import annotations, groups, updates
from mttp.errors import ReadError
from mttp.model import Annotation, Group, Update
from mttp.model.spans import SpanRecord
from mttp.pages import summary as summary_report
from mttp.pages.episode import page
from mttp.pages.terminal import render
from mttp.semconv import attributes as a

TRACE, OTHER, THIRD = (trace_id(number) for number in range(3))
GOOD = Reward(value=1.0, grader="a")
RUN = "run-1"


def span(
    number: int, name: str, attributes: dict[str, Any], *, parent: str = "", position: int = 0, time: int = 0
) -> SpanRecord:
    """A span of the `number`th trace that is no episode's."""
    return SpanRecord(
        trace_id=f"{number + 1:032x}".replace("0", "b", 1),
        span_id=f"{number + 1:08x}{position:08x}",
        parent_id=parent,
        name=name,
        start_time=START + time,
        end_time=START + time,
        attributes=attributes,
    )


def about(number: int, *, time: int = 0, **facts: Any) -> SpanRecord:
    """The span of a statement."""
    stated = Annotation(**{"episode": TRACE, "run_id": RUN, "key": facts.get("kind", ""), **facts})
    return span(number, "annotate", annotations.encode(stated, []), time=time)


def group(number: int, *, time: int = 0, **facts: Any) -> SpanRecord:
    """The span of a group."""
    return span(number, "group", groups.encode(Group(run_id=RUN, **facts), []), time=time)


def update(number: int, **facts: Any) -> list[SpanRecord]:
    """The spans of an update."""
    found = Update(run_id=RUN, **facts)
    root = span(number, "update", updates.encode(found, []), time=number)
    marks = enumerate(updates.markers(found), start=1)
    return [
        *(span(number, "update.links", mark, parent=root.span_id, position=at) for at, mark in marks),
        root,
    ]


def read(*records: SpanRecord | Sequence[SpanRecord], **how: Any) -> mttp.Recording:
    """The recording that these spans make."""
    flat = [record for item in records for record in ([item] if isinstance(item, SpanRecord) else item)]
    return mttp.read(write("a.jsonl", flat), **how)


def text_of(renderable: RenderableType) -> str:
    """What is printed, without colours."""
    console = Console(width=160, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]  # it is a StringIO


def kinds(recording: mttp.Recording) -> list[str]:
    """What is wrong with it."""
    return [problem.kind for problem in recording.problems]


# Groups.


def test_members_know_their_group_and_advantage():
    """
    A member without a group or an advantage gets those of its group.
    """
    found = read(
        episode(0),
        episode(1, **{a.ADVANTAGE: 5.0, a.GROUP_ID: "own"}),
        group(9, id="g", size=2, episodes=(TRACE, OTHER), advantages=(0.5, -0.5)),
    )

    assert [("g", 0.5), ("own", 5.0)] == [(one.group, one.advantage) for one in found]
    assert ([], 1) == (found.problems, len(found.groups))


def test_advantages_that_fit_no_member_are_dropped():
    """
    Two advantages for three members are ignored.
    """
    found = read(episode(0), group(9, id="g", size=1, episodes=(TRACE,), advantages=(0.5, -0.5)))

    assert (None, "g") == (found.episodes[0].advantage, found.episodes[0].group)


@pytest.mark.parametrize(
    "facts", [{"size": 3, "episodes": (TRACE, OTHER)}, {"size": 3, "episodes": (TRACE, OTHER, "f" * 32)}]
)
def test_a_group_that_lacks_members_is_a_problem(facts: dict[str, Any]):
    """
    The group has fewer members than its size, or members that are not in the recording.
    """
    found = read(episode(0), episode(1), group(9, id="g", **facts))

    assert ["group g lacks members: 2 of 3 were found"] == [str(problem) for problem in found.problems]
    assert ("incomplete_group", found.groups[0].trace_id) == (
        found.problems[0].kind,
        found.problems[0].trace_id,
    )


def test_of_two_groups_the_later_says_the_advantage():
    """
    Both are kept.
    """
    found = read(
        episode(0),
        group(8, id="g", size=1, episodes=(TRACE,), advantages=(1.0,), time=2),
        group(9, id="g", size=1, episodes=(TRACE,), advantages=(2.0,), time=1),
    )

    assert (1.0, 2) == (found.episodes[0].advantage, len(found.groups))


def test_an_advantage_that_is_nan_shows():
    """
    NaN stays NaN.
    """
    found = read(episode(0), group(9, id="g", size=1, episodes=(TRACE,), advantages=(math.nan,)))

    np.testing.assert_equal(math.nan, found.episodes[0].advantage)


# Updates.


def test_episodes_know_which_updates_learned_from_them():
    """
    Episodes are consumed as members of a group or directly; each update index is listed once.
    """
    found = read(
        episode(0),
        episode(1, **{a.GROUP_ID: "h"}),
        episode(2),
        group(20, id="g", size=1, episodes=(TRACE,)),
        update(10, index=3, groups=("g", "h")),
        update(11, index=4, groups=("g",), episodes=(TRACE, THIRD)),
        update(12, index=4, policy="b", episodes=(TRACE,)),
    )

    assert [(3, 4), (3,), (4,)] == [one.consumed_by for one in found]
    assert [] == found.problems


def test_a_group_of_another_run_is_another_group():
    """
    Ids are unique in a run.
    """
    found = read(episode(0, **{a.GROUP_ID: "g", a.RUN_ID: "run-2"}), update(10, index=3, groups=("g",)))

    assert () == found.episodes[0].consumed_by


def test_what_an_update_discarded_it_did_not_learn_from():
    """
    The reason is on the episode.
    """
    found = read(
        episode(0),
        group(20, id="g", size=1, episodes=(TRACE,)),
        update(10, index=3, groups=("g",), discarded={"stale": 1}, discarded_episodes={"stale": (TRACE,)}),
        update(11, index=4, discarded={"stale": 1}, discarded_episodes={"stale": (TRACE,), "long": (TRACE,)}),
    )

    assert ((), ("stale", "long")) == (found.episodes[0].consumed_by, found.episodes[0].discarded_by)


def test_two_updates_with_one_index_are_a_problem():
    """
    Both are kept; other policies and other runs have indices of their own.
    """
    found = read(run(), update(10, index=3), update(11, index=3), update(12, index=3, policy="b"))

    assert (["conflicting_updates"], 3) == (kinds(found), len(found.updates))
    assert "2 updates in run run-1 have the index 3; all were kept" == str(found.problems[0])


def test_an_update_without_its_markers_says_what_it_says():
    """
    Counts are on the update itself.
    """
    (*_, root) = update(10, index=3, episodes=(TRACE,), consumed=1)

    assert (1, ()) == ((found := read(root).updates[0]).consumed, found.episodes)


# Statements.


def test_the_highest_revision_wins_and_all_are_kept():
    """
    Of equal revisions, the later start is used, then the higher span id.
    """
    found = read(
        episode(0, **{a.EPISODE_OUTCOME: "unknown"}),
        about(10, kind="outcome", value="success", revision=2, time=1),
        about(11, kind="outcome", value="failure", revision=1, time=5),
        about(12, kind="advantage", value=1.0, revision=1, time=1),
        about(13, kind="advantage", value=2.0, revision=1, time=2),
        about(14, kind="advantage", value=0.0, revision=1, time=2),
    ).episodes[0]

    assert ("success", 0.0, 5, {}) == (found.outcome, found.advantage, len(found.annotations), found.extra)
    assert [1.0, "success"] == [one.value for one in found.annotations if one.start_time == START + 1][::-1]


def test_a_statement_wins_over_what_the_episode_says_which_is_kept():
    """
    Replaced values are in `extra`, under the names of their attributes.
    """
    found = read(
        episode(0, **{a.ADVANTAGE: 5.0, f"{a.METADATA}.topic": "x", f"{a.METADATA}.kept": 1, "odd.key": 1}),
        about(10, kind="outcome", value="failure"),
        about(11, kind="advantage", value=1.0),
        about(12, kind="fact", key="topic", value="algebra"),
        about(13, kind="fact", key="new", value=[1]),
    ).episodes[0]

    assert ("failure", 1.0) == (found.outcome, found.advantage)
    assert {"topic": "algebra", "kept": 1, "new": [1]} == found.metadata
    assert {
        a.EPISODE_OUTCOME: "success",
        a.ADVANTAGE: 5.0,
        f"{a.METADATA}.topic": "x",
        "odd.key": 1,
    } == found.extra


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "outcome", "value": "maybe"},
        {"kind": "label", "value": "x"},
        {"kind": "comment", "value": "y"},
    ],
)
def test_other_statements_change_nothing(facts: dict[str, Any]):
    """
    Labels and comments are only in `annotations`.
    """
    plain, found = read(episode(0)).episodes[0], read(episode(0), about(10, **facts)).episodes[0]

    assert (plain, [facts["value"]]) == (found, [one.value for one in found.annotations])


@pytest.mark.parametrize("value", ["high", True, {"is": 1.0}])
def test_an_advantage_that_is_no_number_is_missing(value: object):
    """
    An invalid advantage is a problem, and the episode is unchanged.
    """
    plain, found = read(episode(0)).episodes[0], read(episode(0), about(10, kind="advantage", value=value))

    assert (plain, [None]) == (found.episodes[0], [one.value for one in found.annotations])
    assert ["wrong_type"] == [problem.kind for problem in found.problems]


def test_a_recorded_reward_is_never_changed_by_a_score():
    """
    Later scores and the run's scorings are in `scores`, by grader.
    """
    found = read(
        episode(0, components={"a": 0.5}, **{a.GRADER_NAME: "x"}),
        about(10, kind="score", value=1.0, reward=Reward(value=1.0, grader="judge"), revision=1),
        about(11, kind="score", value=0.25, reward=Reward(value=0.25, grader="judge"), revision=2),
        about(12, kind="score", value=2.0, reward=Reward(value=2.0), revision=3),
        about(13, kind="score", reward=Reward(status="error", raw="nan", grader="late"), revision=3),
    ).episodes[0]

    assert (0.5, 1.0, 1) == (found.reward.value, found.return_, len(found.rewards))
    assert {"judge": 0.25, "": 2.0, "late": None} == {name: one.value for name, one in found.scores.items()}


def test_a_later_score_of_the_same_grader_wins_over_the_run_s_own(session: mttp.Session):
    """
    `scores` has the later score, `rewards` the original one.
    """
    with mttp.episode() as played:
        played.reward(0.0, grader="judge")
    mttp.score(played, 1.0, grader="judge")

    (found,) = mttp.read(session)
    assert (1.0, 0.0, 0.0) == (found.scores["judge"].value, found.rewards[0].value, found.reward.value)


def test_an_episode_without_a_reward_takes_the_late_score():
    """
    The later score becomes the reward and the return.
    """
    unpaid = [replace(record, attributes=dict(record.attributes)) for record in episode(0, steps=0)]
    for record in unpaid:
        for key in (a.EPISODE_RETURN, a.EPISODE_RETURN_BASIS):
            record.attributes.pop(key, None)  # type: ignore[attr-defined]  # it is a dict
    score = about(10, kind="score", value=1.0, reward=GOOD)

    found = read(unpaid, score).episodes[0]

    assert (1.0, 1.0, ()) == (found.reward.value, found.return_, found.rewards)


@pytest.mark.parametrize("reward", [1.0, math.nan, None])
def test_an_episode_with_step_rewards_does_not(session: mttp.Session, reward: float | None):
    """
    Neither does an episode whose rewards are errors.
    """
    with mttp.episode() as played:
        with played.step() as step:
            step.reward(reward)
        if reward is None:
            played.reward(None, status="abstained")
    mttp.score(played, 0.5)

    (found,) = mttp.read(session)
    assert (None, 0.5) == (found.reward.value, found.scores[""].value)


def test_steps_are_annotated_by_index_or_span():
    """
    The annotation of a step is on the step, not on the episode.
    """
    spans = episode(0)
    found = read(
        spans,
        about(10, kind="score", value=1.0, reward=GOOD, step=1),
        about(11, kind="fact", key="topic", value="x", step_span_id=spans[0].span_id),
        about(12, kind="label", value="good", step_span_id=spans[1].span_id, step=1),
        about(13, kind="comment", value="root", step_span_id=spans[-1].span_id),
    ).episodes[0]

    first, second = found.steps
    assert ({"topic": "x"}, {}, 1) == (first.metadata, first.scores, len(first.annotations))
    assert ({"a": 1.0}, 2, 1.0) == (
        {name: one.value for name, one in second.scores.items()},
        len(second.annotations),
        second.reward,
    )
    assert ["root"] == [one.value for one in found.annotations]


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"episode": "f" * 32}, f"episode {'f' * 32}"),
        ({"step": 7}, f"step 7 of episode {TRACE}"),
        ({"step_span_id": "f" * 16}, f"step {'f' * 16} of episode {TRACE}"),
        ({"kind": "preference", "rejected": ("f" * 32,)}, f"episode {'f' * 32}"),
    ],
)
def test_a_statement_about_nothing_that_is_there_is_a_problem(facts: dict[str, Any], what: str):
    """
    The annotation is kept in `Recording.annotations`.
    """
    found = read(episode(0), about(10, **{"kind": "label", "value": "x", "by": "me", **facts}))
    key = facts.get("kind", "label")

    assert (["unknown_target"], 1) == (kinds(found), len(found.annotations))
    assert f"the {key} by me refers to {what}, which is not in the recording" == str(found.problems[0])
    assert found.annotations[0].trace_id == found.problems[0].trace_id
    with pytest.raises(ReadError, match="refers to"):
        mttp.read("a.jsonl", strict=True)


def test_an_index_that_several_steps_have_means_none_of_them():
    """
    Steps of several agents share indices; a span id identifies the step.
    """
    with mttp.configure(transport="memory://") as session:
        with mttp.episode() as episode:
            white = episode.agent("white").step()
            episode.agent("black").step()
        mttp.score((episode, 0), 0.5, grader="judge")
        mttp.score((episode, white.span_id), 1.0, grader="judge")

    found = mttp.read(session)

    assert [("white", 1), ("black", 0)] == [
        (one.agent, len(one.annotations)) for one in found.episodes[0].steps
    ]
    what = f"step 0 of episode {episode.trace_id}"
    assert [f"the score by judge refers to {what}, and 2 steps have that index"] == list(
        map(str, found.problems)
    )


def test_a_preference_is_with_all_that_it_names():
    """
    The chosen and the rejected episodes have the preference.
    """
    found = read(episode(0), episode(1), episode(2), about(10, kind="preference", rejected=(OTHER,)))

    assert [1, 1, 0] == [len(one.annotations) for one in found]


def test_statements_of_others_are_read_as_far_as_they_go():
    """
    A score without a status is ok; unknown kinds and keys are kept.
    """
    ours = {a.RUN_ID: RUN, a.ANNOTATION_TARGET_TRACE_ID: TRACE}
    score = {a.ANNOTATION_KIND: "score", a.ANNOTATION_KEY: a.REWARD_VALUE, a.ANNOTATION_VALUE: 0.5}
    odd = {a.ANNOTATION_KIND: "eval", a.ANNOTATION_KEY: "some.key", a.ANNOTATION_VALUE: 1, "x": 2}
    found = read(
        episode(0),
        span(10, "annotate", ours | score),
        span(11, "annotate", ours | odd),
        span(12, "annotate", {}),
    )

    assert [("score", "score", 0.5), ("eval", "some.key", 1)] == [
        (one.kind, one.key, one.value) for one in found.annotations
    ]
    assert (0.5, {"x": 2}) == (found.episodes[0].scores[""].value, found.annotations[1].extra)


def test_duplicates_count_once():
    """
    A repeated annotation counts once.
    """
    stated = about(10, kind="score", value=1.0, reward=GOOD)
    found = read(episode(0), stated, stated)

    assert (1, 1, 1) == (len(found.annotations), len(found.episodes[0].annotations), found.duplicates)


def test_an_annotated_episode_can_be_recorded_again():
    """
    The merged values are recorded; the annotations are not.
    """
    spans = episode(0, **{a.ADVANTAGE: 5.0, f"{a.METADATA}.topic": "x"})
    first = read(
        spans,
        about(10, kind="outcome", value="failure"),
        about(11, kind="fact", key="topic", value="algebra"),
        about(12, kind="fact", key="topic", value="logic", step=1),
    ).episodes[0]
    with mttp.configure("memory://") as session:
        session.record(first)

    second = mttp.read(session).episodes[0]

    assert ("failure", {"topic": "algebra"}, ()) == (second.outcome, second.metadata, second.annotations)
    assert {"topic": "logic"} == second.steps[1].metadata


# Elsewhere.


def everything() -> list[SpanRecord]:
    """Two episodes and whatever can be said of them."""
    return [
        *run(),
        *episode(0),
        *episode(1),
        group(10, id="g", size=2, episodes=(TRACE, OTHER), rewards=(1.0, 1.0), advantages=(0.5, -0.5)),
        *update(11, index=3, groups=("g",), loss=math.nan, discarded={"stale": 2}),
        about(12, kind="score", value=1.0, reward=GOOD, by="a"),
        about(13, kind="score", value=0.5, reward=replace(GOOD, value=0.5), step=1),
        about(14, kind="preference", rejected=(OTHER,), by="me"),
        about(15, kind="comment", value="fine", by="me", time=SECOND),
    ]


def test_a_summary_counts_them_and_takes_them_for_nothing_else():
    """
    Groups, updates and annotations are neither episodes nor runs.
    """
    path = write("all.jsonl", everything() + everything()[-1:])
    plain = mttp.summarize(write("plain.jsonl", [*run(), *episode(0), *episode(1)]))

    found = mttp.summarize(path)

    assert (1, 1, 4, 1) == (found.groups, found.updates, found.annotations, found.duplicates)
    assert (len(plain), len(plain.runs), list(plain.returns)) == (
        len(found),
        len(found.runs),
        list(found.returns),
    )
    assert [] == found.problems


def test_reports_say_what_was_learned_and_stated():
    """
    A summary has counts; an episode's page has the annotations with their authors.
    """
    found = read(everything())
    summary = mttp.summarize("a.jsonl")

    trees = [text_of(render(page(one))) for one in found]
    headline = text_of(render(summary_report.page(summary))).splitlines()[0]

    assert headline.endswith("1 run, 1 group, 1 update, 4 annotations")
    for words in (
        "advantage     0.5",
        "consumed by   3",
        "score  1 by a  ",
        f"preference  to {OTHER[:8]} by me  ",
    ):
        assert words in trees[0]
    assert "comment  fine by me  2025-06-15 15:06:41" in trees[0]
    assert "score  0.5  " in trees[0].partition("step 1")[2]
    assert f"preference  of {TRACE[:8]} by me  " in trees[1]


def test_tables_have_a_row_for_each():
    """
    Preferences are annotations, and the scores of annotations are scorings, too.
    """
    pytest.importorskip("duckdb")
    tables = read(everything()).tables

    (of_group,), (of_update,) = tables.groups.rows(), tables.updates.rows()
    assert ("g", [TRACE, OTHER], [0.5, -0.5]) == (
        of_group["id"],
        of_group["episodes"],
        of_group["advantages"],
    )
    assert (3, ["g"], {"stale": 2}) == (of_update["index"], of_update["groups"], of_update["discarded"])
    rows = tables.annotations.rows()
    assert [("score", 1.0, None), ("score", 0.5, 1), ("preference", None, None)] == [
        (row["kind"], row["number"], row["step"]) for row in rows[:3]
    ]
    assert '"fine"' == rows[3]["value"]
    preferences = "select episode, unnest(rejected) as other, annotated_by from annotations"
    assert [{"episode": TRACE, "other": OTHER, "annotated_by": "me"}] == tables.sql(preferences).rows()
    assert 0.5 == tables.episodes.rows(1)[0]["advantage"]
    assert [{}, {"a": 0.5}] == [row["scores"] for row in tables.steps.rows(2)]
    current = "select grader, value from scorings where is_current and step_index is null"
    assert [{"grader": "a", "value": 1.0}] == tables.sql(current).rows()


def test_a_recording_says_how_many_there_are():
    """
    The repr has the counts.
    """
    shown = repr(read(everything()))

    assert "2 episodes, 1 run, 1 group, 1 update, 4 annotations, 0 problems" in shown


def test_episodes_without_any_of_it_are_left_as_they_are():
    """
    An episode without later facts is the decoded object.
    """
    (found,) = read(episode(0)).episodes

    assert ((), (), (), {}) == (found.annotations, found.consumed_by, found.discarded_by, found.scores)


def test_the_run_s_own_graders_are_in_the_scores():
    """
    Scorings of the run are in `scores` without annotations.
    """
    assert {"math-grader": 0.9, "judge": None} == {
        name: scoring.value for name, scoring in EVERYTHING.scores.items()
    }

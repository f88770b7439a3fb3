"""Summaries and episodes as documents and as text."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from reading.traces import episode, run, write
from rich.console import Console
from specimen import EVERYTHING

import mttp
from mttp.cli.rendering import episodes as episode_report
from mttp.pages import summary as summary_report
from mttp.pages.episode import page
from mttp.pages.terminal import render
from mttp.reading.jsonable import jsonable, to_json

EPISODE = replace(EVERYTHING, trace_id="ab" * 16, run_id="run-1")


def text_of(renderable: Any) -> str:
    """What is printed, without colour."""
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def recorded(count: int = 4) -> str:
    """A file of a run and some episodes, one of them unfinished."""
    spans = [*run(), *episode(count, steps=3)[:-1]]
    for number in range(count):
        spans += episode(number, return_=number / 2, components={"correct": number / 4})
    return str(write("a.jsonl", spans))


def test_a_summary_is_a_document():
    """
    Every figure has its key.
    """
    facts = summary_report.document(mttp.summarize(recorded()))
    totals = facts["totals"]

    assert (["a.jsonl"], 0, 0) == (facts["sources"], facts["evals"], facts["duplicates"])
    assert [("run-1", "first", "train", "completed", True, 1)] == [
        tuple(run[key] for key in ("id", "name", "kind", "run_status", "complete", "processes"))
        for run in facts["runs"]
    ]
    assert {
        "episodes": 5,
        "steps": 11,
        "groups": 0,
        "updates": {"count": 0, "loss": None, "kl": None, "entropy": None},
        "annotations": 0,
        "verdicts": [],
        "status": {"completed": 4, "unfinished": 1},
        "outcome": {"success": 4, "unknown": 1},
        "env": {"CartPole-v1": 4, "": 1},
        "failed_gradings": 0,
        "partial_rewards": None,
        "unlisted_gradings": 0,
        "invalid_step_rewards": 0,
        "faults": {},
        "omissions": {},
        "tokens": {"prompt": 0, "completion": 0, "call_input": 0, "call_output": 0},
        "cost": {"total_usd": None, "count": 0, "of": 5},
        "not_counted": {"cut_off": 1},
        "curve": [0.0, 0.5, 1.0, 1.5],
        "weighted": None,
    } == {key: totals[key] for key in totals.keys() - {"return", "duration", "length", "spec", "graders"}}
    figures = {"count": 4, "of": 4, "mean": 0.75, "min": 0.0, "median": 0.75, "max": 1.5}
    assert figures.items() <= totals["return"].items()
    assert (None, None) == (totals["return"]["interval"], totals["return"]["interval_method"])
    assert "a run of kind train changes its policy; see first and last" == totals["return"]["interval_reason"]
    (correct,) = (one for one in totals["graders"] if one["component"] == "correct")
    graded = {"grader": "math 1.0", "count": 4, "of": 5, "mean": 0.375, "min": 0.0, "max": 0.75, "ok": 4}
    assert graded.items() <= correct.items()
    assert [("unfinished_episode", None)] == [(p["kind"], p["file"]) for p in facts["problems"]]


def test_the_guide_lists_every_key_of_a_summary():
    """
    What a program may ask for is documented.
    """
    guide = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    table = guide.partition("| key of the document |")[2].partition("\n\n")[0]
    documented = [
        key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.partition(" | ")[0])
    ]

    facts = summary_report.document(mttp.summarize(recorded()))

    assert set(documented) == {*facts, *facts["runs"][0]}


def test_a_summary_s_document_is_json_without_nan():
    """
    What is not a number is null.
    """
    facts = summary_report.document(mttp.summarize(write("b.jsonl", episode(0)[:-1])))

    assert facts == json.loads(json.dumps(facts, allow_nan=False))
    assert (None, None) == (facts["totals"]["return"]["mean"], facts["totals"]["return"]["interval"])


def test_on_a_terminal_the_curve_is_a_plot():
    """
    Elsewhere it is one line, as the expected pages say.
    """
    console = Console(width=100, force_terminal=True)
    with console.capture() as captured:
        console.print(render(summary_report.page(mttp.summarize(recorded()))))

    assert "│" in captured.get()


def test_a_summary_of_nothing_is_text_too():
    """
    No episodes, no figures, no failure.
    """
    text = text_of(render(summary_report.page(mttp.summarize(write("c.jsonl", run())))))

    assert "0 episodes, 0 steps, 1 run" in text


def test_tables_list_runs_and_episodes():
    """
    One row each, ids as short as they can be.
    """
    found = mttp.read(recorded(2))
    runs = text_of(episode_report.runs_table(found.runs, limit=None)).splitlines()
    episodes = text_of(episode_report.episodes_table(found.episodes, limit=None)).splitlines()

    assert ["run-1", "first", "completed"] == runs[1].split()[:3]
    assert ["00000001", "00000002", "00000003"] == [line.split()[0] for line in episodes[1:]]
    assert "unfinished" in episodes[3]


def test_long_tables_say_how_many_more_there_are():
    """
    A limit is never silent.
    """
    found = mttp.read(recorded(4))

    assert "… and 3 more; --limit 0 shows all" in text_of(
        episode_report.episodes_table(found.episodes, limit=2)
    )
    assert "more" not in text_of(episode_report.episodes_table(found.episodes, limit=5))


def test_columns_that_say_nothing_are_left_out():
    """
    Tasks, outcomes and kinds of runs are columns where there are any to tell.
    """
    plain = [mttp.Episode(trace_id="ab" * 16)]
    told = [*plain, mttp.Episode(trace_id="cd" * 16, task="a", outcome="success")]
    heads = [
        text_of(episode_report.episodes_table(given, limit=None)).split("\n")[0] for given in (plain, told)
    ]

    assert [False, True] == ["task" in head and "outcome" in head for head in heads]
    kinds = [
        text_of(episode_report.runs_table([mttp.model.Run(id="a", kind=kind)], limit=None))
        for kind in ("train", "eval")
    ]
    assert [False, True] == ["kind" in text for text in kinds]


def test_the_day_is_reported_where_it_differs():
    """
    Within one day the time is enough.
    """
    day = 86_400 * 10**9
    times = (EPISODE.start_time or 0, (EPISODE.start_time or 0) + day)
    episodes = [replace(EPISODE, start_time=time) for time in times]
    tables = [text_of(episode_report.episodes_table(given, limit=None)) for given in (episodes[:1], episodes)]

    assert [False, True] == ["2025-06-15" in text for text in tables]
    assert all("15:06:40" in text for text in tables)


def test_ids_grow_until_they_differ():
    """
    A prefix that is shown names one episode only.
    """
    twins = [replace(EPISODE, trace_id="ab" * 15 + end) for end in ("01", "02")]
    rows = text_of(episode_report.episodes_table(twins, limit=None)).splitlines()[1:]

    assert ["ab" * 15 + "01", "ab" * 15 + "02"] == [row.split()[0] for row in rows]


def test_episodes_are_sorted_with_the_unknown_last():
    """
    Lowest first or highest first; what has no return comes last either way.
    """
    episodes = mttp.read(recorded(3)).episodes
    ups, downs = (episode_report.sorted_by(episodes, "return", reverse=reverse) for reverse in (False, True))

    assert [0.0, 0.5, 1.0, None] == [one.return_ for one in ups]
    assert [1.0, 0.5, 0.0, None] == [one.return_ for one in downs]


def test_a_page_tells_the_whole_episode():
    """
    Steps, observations, actions, tokens, scorings, calls, errors and faults are all there.
    """
    text = re.sub(" +(?=\n)|(?<= ) +", "", text_of(render(page(EPISODE))))

    for words in (
        f"episode {'ab' * 16}",
        "return 0.9",
        "outcome success",
        "status completed: terminated",
        "duration 5 s",
        "task train/17",
        "slices algebra, 日本",
        'inputs {"answer": "4"',
        "final observation\n[[0. 1. 2.]\n [3. 4. 5.]] float32 (2, 3)",
        "metrics.searches 2",
        "metadata.teacher none",
        "reward 0.9, math-grader, math 1.2.0",
        "correct 1 x 0.8 = 0.8",
        "judge error",
        "why pass; good; it is four",
        "failed checks: leak",
        "step 0 reward 0.25",
        "observation 2+2=?",
        "action <answer>4</answer>",
        "3 sampled, 2 prompt, after 2 of step 0, mean logprob -0.2",
        "tiny, 2 tokens in",
        "3 tokens out, stop",
        "temperature 0.7 max_tokens 64 seed 1",
        'arguments {"query": "2+2", "top": 3}',
        "error TimeoutError: too slow",
        "reward raw nan",
        "error ValueError: bad reward",
        "fault reward_invalid: nan",
        "observation\n [[1 2]\n [3 4]] uint8 (2, 2)",
        "omitted: too long",
        "Agent player_0\nterminated, return -1, 7 steps",
        "name White\npolicy tiny@4",
        "step 3 of player_0 reward -1",
    ):
        assert words in text


def test_a_page_s_steps_can_be_limited():
    """
    The number of further ones is printed.
    """
    text = text_of(render(page(EPISODE, limit=1)))

    assert ("step 0" in text, "step 1 " in text, "… and 4 more steps; --limit 0 shows all" in text) == (
        True,
        False,
        True,
    )


def test_an_empty_completion_says_so():
    """
    A text or a message without content was recorded, and is not merely absent.
    """
    message = [{"role": "assistant", "content": ""}]
    steps = (mttp.Step(index=0, observation="2+2=?", action=""), mttp.Step(index=1, action=message))
    episode = replace(EPISODE, steps=steps)
    text = text_of(render(page(episode)))

    assert "action  (empty)" in text
    assert "assistant  (empty)" in text


def test_content_is_never_markup():
    """
    Square brackets in what was recorded are printed as they are.
    """
    step = mttp.Step(observation="[red]no[/red] [bold]", action="[/]")
    text = text_of(render(page(replace(EPISODE, steps=(step,), env="[x]", task="[/y]"))))

    assert all(words in text for words in ("[red]no[/red] [bold]", "action  [/]", "[x]", "[/y]"))


def test_control_characters_have_no_effect():
    """
    What a model wrote can't move the cursor or change colours.
    """
    step = mttp.Step(observation="\x1b[31mred\x07\nnext\u202e", metadata={"x": "\x1b[2J"})
    evil = replace(
        EPISODE, steps=(step,), env="\x1b[1m", task="\x9b1m", outcome="\x1b]0;t\x07", status="a\rb"
    )
    text = text_of(render(page(evil))) + text_of(episode_report.episodes_table([evil], limit=None))

    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(text)
    assert "\\x1b[31mred\\x07\n" in text
    assert "next\\u202e" in text


def test_an_episode_is_a_document():
    """
    All fields but the steps, by their names.
    """
    document = episode_report.document(EPISODE)
    names = {field.name.rstrip("_") for field in fields(mttp.Episode)}

    assert names - {"steps"} | {"duration", "scores"} == set(document)
    assert document == json.loads(to_json(document))


def test_values_become_strict_json():
    """
    NaN is null, bytes are base64, arrays are lists, values are objects.
    """
    given = {
        "a": [float("nan"), b"\x00\xff", EVERYTHING.final_observation, (1, None)],
        2: mttp.model.Spec(name="x"),
    }
    spec = {"name": "x", "version": None, "sha256": None, "code_sha256": None, "code_coverage": None}

    assert {"a": [None, "AP8=", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [1, None]], "2": spec} == jsonable(given)

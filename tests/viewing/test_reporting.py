"""Reports: which episodes they hold, what their pages say, and what they do with bad input."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown import blocks
from shown import texts as texts_of
from typer.testing import CliRunner
from viewing.recorded import pieces, record

import mttp
from mttp.cli.app import app
from mttp.errors import ConfigureError, ReadError, StudyError
from mttp.model.episodes import Tokens
from mttp.pages.messages import contents
from mttp.pages.tokens import token_block
from mttp.viewing import Report, report, reporting


def data(found: Report) -> dict[str, Any]:
    """The data in the file."""
    (text,) = re.findall(r'id="mttp-report">(.*?)</script>', found.html, re.DOTALL)
    return dict(json.loads(text))


def pages(found: Report) -> dict[str, Any]:
    """The pages of episodes in the file."""
    read: dict[str, Any] = {}
    for chunk in data(found)["chunks"]:
        read |= json.loads(gzip.decompress(base64.b64decode(chunk)))
    return read


def texts(found: Report) -> Any:
    """The texts in the file that the search reads."""
    return json.loads(gzip.decompress(base64.b64decode(data(found)["texts"])))


def sections(found: Report) -> dict[str, str]:
    """The sections of the overview as text."""
    return {one["id"]: json.dumps(one["blocks"]) for one in data(found)["overview"]["sections"]}


def column(found: Report, key: str) -> list[Any]:
    document = data(found)
    place = [one["key"] for one in document["overview"]["columns"]].index(key)
    return [row[place] for row in document["rows"]]


def play(path: str, values: list[float | None], **facts: Any) -> None:
    """Record an episode for each reward; None has none."""
    with mttp.configure(f"file://{path}"):
        for place, value in enumerate(values):
            with mttp.episode(env="e", task=f"t{place}", **facts) as episode:
                with episode.step() as step:
                    step.action("a")
                if value is not None:
                    episode.reward(value)
                    episode.end(outcome="success" if value > 0 else "failure")


def test_all_episodes_can_be_opened() -> None:
    """
    Each row has a page, and a page what the episode has.
    """
    record("run.jsonl", groups=3)
    found = report("run.jsonl", pieces=pieces)
    episodes = mttp.read("run.jsonl").episodes

    assert [one.trace_id for one in episodes] == column(found, "episode")
    assert {one.trace_id for one in episodes} == {*pages(found)}
    assert (12, 12, 12) == (found.episodes, found.rows, found.pages)
    assert [one.advantage for one in episodes] == pytest.approx(column(found, "advantage"))
    page = pages(found)[episodes[0].trace_id]["blocks"]
    (group,) = (each for each in page if each.get("id") == "group")
    (reward,), (timeline,) = blocks(page, "reward"), blocks(page, "timeline")
    assert ("Group g0", 4) == (group["title"], len(group["blocks"][0]["rows"]))
    assert ["right", "length"] == [component["name"] for component in reward["components"]]
    assert [46, 46] == [len(tokens["pieces"]) for tokens in blocks(page, "tokens")]
    assert ["calls add"] == [call["title"] for call in blocks(page, "call")]
    assert {"episode", "step", "call", "reward"} <= {span["kind"] for span in timeline["spans"]}


def test_a_file_a_value_and_a_recording_give_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    But for the time at which it was made.
    """
    record("run.jsonl", groups=2)
    monkeypatch.setattr(reporting.time, "time", lambda: 0.0)

    assert report("run.jsonl").html == report(mttp.read("run.jsonl")).html


def test_the_search_reads_calls_of_tools_and_errors_until_they_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Without them it reads prompts and completions.
    """
    with mttp.configure("file://run.jsonl"), mttp.episode() as episode, episode.step() as step:
        step.observation("question")
        step.action("answer")
        with suppress(OSError), step.tool_call("disk", arguments={"of": "2+4="}) as call:
            call.result("x" * 300)
            raise OSError("full")
    ((prompt, completion, exchange),) = texts(report("run.jsonl"))
    size = len(data(report("run.jsonl"))["texts"])
    monkeypatch.setattr(reporting, "_MOST_TEXTS", size - 1)

    assert ("question", "answer") == (prompt, completion)
    assert ["of: 2+4=", "x" * 300, "OSError: full"] == exchange.split("\n")
    assert [["question", "answer"]] == texts(report("run.jsonl"))


def test_beyond_the_limit_both_ends_are_kept_and_said() -> None:
    """
    The worst, the best, failures with high rewards; curves are of all episodes.
    """
    values = [float(value) for value in np.random.default_rng(0).normal(size=300)]
    play("run.jsonl", values)
    found = report("run.jsonl", limit=40)
    kept = column(found, "reward")

    assert (300, 40, 40) == (found.episodes, found.rows, found.pages)
    assert {min(values), max(values)} <= {*kept}
    assert max(value for value in values if value <= 0) in kept
    assert "40 of 300 episodes are here" in data(found)["overview"]["sampling"]
    assert '"value": 300' in sections(found)["summary"]


def test_a_report_that_would_be_too_large_leaves_pages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Rows stay, and the page says how many can be opened.
    """
    monkeypatch.setattr(reporting, "_MOST_BYTES", 20_000)
    monkeypatch.setattr(reporting, "_CHUNK", 1_000)
    record("run.jsonl", groups=5)
    found = report("run.jsonl")

    assert 20 == found.rows
    assert 0 < found.pages < 20
    assert f"{found.pages} of them can be opened" in data(found)["overview"]["sampling"]
    assert 20_000 >= sum(map(len, data(found)["chunks"]))


def test_an_empty_recording_is_a_report() -> None:
    """
    It says that there are no episodes.
    """
    with mttp.configure("file://run.jsonl"):
        pass
    found = report("run.jsonl")

    assert (0, 0, 0) == (found.episodes, found.rows, found.pages)
    assert "no episodes" in sections(found)["summary"]


@pytest.mark.parametrize(
    "values",
    [
        [1.0],
        [None],
        [None, None, 1.0],
        [math.nan] * 3,
        [math.inf, 1.0],
        [1e308, -1e308, 1.0],
        [0.0] * 60,
        [1.0, 2.0] * 40,
    ],
    ids=str,
)
def test_any_rewards_are_shown(values: list[float | None]) -> None:
    """
    Missing, invalid, huge and equal ones.
    """
    play("run.jsonl", values)
    found = report("run.jsonl")

    assert len(values) == found.rows
    json.dumps(data(found), allow_nan=False)  # raises if a number is not finite


def test_missing_and_failed_rewards_are_counted() -> None:
    """
    In the summary, over time, and as a view of the list.
    """
    play("run.jsonl", [1.0, None, math.nan] * 30)
    found = report("run.jsonl")

    assert (
        "30 missing, 30 error" in sections(found)["summary"]
        or "30 error, 30 missing" in sections(found)["summary"]
    )
    assert "Invalid rewards" in sections(found)["returns"]
    assert "Not scored" in [one["name"] for one in data(found)["overview"]["views"]]
    assert "failed gradings" in sections(found)["summary"]


def test_errors_faults_and_missing_spans_are_warnings_of_the_page() -> None:
    """
    Before anything else of the episode.
    """

    def fail() -> None:
        with mttp.configure("file://run.jsonl"), mttp.episode(env="e") as episode:
            with episode.step() as step:
                step.reward(math.nan)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        fail()
    found = report("run.jsonl")
    (page,) = pages(found).values()

    assert "error  RuntimeError: boom" == page["blocks"][1]["text"]
    assert "nan" in json.dumps(blocks(blocks(page["blocks"], "step"), "note"))
    assert "Errors" in [one["name"] for one in data(found)["overview"]["views"]]


def test_an_unfinished_episode_is_shown() -> None:
    """
    With what was recorded, and that it has no end.
    """
    with mttp.configure("file://open.jsonl") as session:
        episode = mttp.episode(env="e")
        episode.__enter__()
        with episode.step():
            pass
        session.flush()
        Path("cut.jsonl").write_bytes(Path("open.jsonl").read_bytes())
        episode.__exit__(None, None, None)
    found = report("cut.jsonl")

    assert ["unfinished"] == column(found, "status")
    (page,) = pages(found).values()
    assert any("unfinished" in note["text"] for note in blocks(page["blocks"], "note"))
    assert "has no end" in sections(found)["problems"]


def test_agents_annotations_and_late_scores_are_shown() -> None:
    """
    In the episode's facts, its annotations and its reward.
    """
    with mttp.configure("file://run.jsonl"):
        with mttp.episode(env="e") as episode:
            for name in ("buyer", "seller"):
                with episode.agent(name) as agent, agent.step() as step:
                    step.action(name)
                    step.reward(1.0)
        mttp.annotate(episode, "topic", "prices", by="me")
        mttp.score(episode, 0.25, grader="human", explanation="polite")
    (page,) = pages(report("run.jsonl")).values()
    sections = {each["title"]: each["blocks"] for each in page["blocks"] if "title" in each}

    assert "return 1, 1 step" == sections["Agent buyer"][0]["text"]
    assert {"buyer", "seller"} == {step["agent"] for step in blocks(page["blocks"], "step")}
    assert any(note["text"].startswith("topic  prices by me  ") for note in sections["Annotations"])
    assert ("human", 0.25) == tuple(sections["Reward"][0][key] for key in ("grader", "value"))


def seeds(*, returns: tuple[float, ...] = (1.0, 2.0, 4.0)) -> None:
    """Two settings with two seeds each; the second setting has twice the return."""
    for setting in (1, 2):
        for seed in (1, 2):
            path = f"file://runs/{setting}-{seed}.jsonl"
            with mttp.configure(
                path, run=f"s{setting}", seed=seed, config={"lr": setting, "net": {"width": 8}}
            ):
                for value in returns:
                    with mttp.episode(env="e") as episode:
                        for _ in range(2):
                            with episode.step():
                                pass
                        episode.reward(setting * value + 0.1 * seed)
                        episode.end(terminated=True)
                    mttp.update(loss=value)


def test_runs_of_a_name_are_one_curve_with_a_band() -> None:
    """
    Over each axis, with method and number of runs; what never changes has no chart.
    """
    seeds()
    blocks = json.loads(sections(report("runs"))["returns"])
    chart = blocks[0]
    assert ["s1", "s2"] == [one["name"] for one in chart["series"]]
    assert [1.15, 2.15, 4.15] == pytest.approx(chart["series"][0]["y"])
    assert "Mean of 2 runs, 95 % t interval." == chart["note"]
    assert all(value < 1.15 for value in chart["series"][0]["low"][:1])
    assert ["episodes", "steps", "updates", "time"] == [view["axis"] for view in chart["views"]]
    assert [2, 4, 6] == chart["views"][1]["series"][0]["x"]
    assert "Without a chart, since it never changes: length = 2." == blocks[-1]["text"]


def test_several_runs_stand_first_with_what_differs() -> None:
    """
    Their last returns with the trend, and the settings that differ; the rest is folded.
    """
    seeds()
    overview = data(report("runs"))["overview"]
    first, first_run = overview["sections"][0], mttp.read("runs/1-1.jsonl").runs[0].id
    listed, shared, processes = first["blocks"]
    assert ("runs", [False, True, True]) == (
        first["id"],
        [block["folded"] for block in (listed, shared, processes)],
    )
    keys = [column["key"] for column in listed["columns"]]
    assert ["config.lr", "seed"] == keys[-2:]
    row = [f"{first_run} s1", "completed", "e", 3, pytest.approx(4.1), "▁▃█", 0, "none", 1, 1]
    assert row == listed["rows"][0]
    assert [["config.net.width", 8]] == shared["rows"]


def test_each_of_several_runs_is_diagnosed() -> None:
    """
    Their findings are one table, the worst first, and counted in the table of runs and in the summary.
    """
    seeds(returns=(1.0,) * 40)
    made = report("runs")
    overview = data(made)["overview"]
    by_id = {section["id"]: section["blocks"] for section in overview["sections"]}
    keys = [column["key"] for column in by_id["runs"][0]["columns"]]
    counts = [row[keys.index("findings")] for row in by_id["runs"][0]["rows"]]
    findings = next(block for block in by_id["diagnosis"] if block["type"] == "table")
    severities = [row[0] for row in findings["rows"]]
    total = by_id["summary"][0]["items"][0]
    assert ("findings", len(severities)) == (total["label"], total["value"])
    assert 4 == len(counts)
    assert all(count != "none" for count in counts)
    assert severities == sorted(severities, key=["high", "medium", "low"].index)
    assert {"s1", "s2"} == {row[1].split()[1] for row in findings["rows"]}
    assert any(line.startswith("s1: ") for line in made.headlines)


def test_the_baseline_is_compared_or_the_refusal_is_shown() -> None:
    """
    What differs first; a refusal is no verdict.
    """
    record("base.jsonl", groups=3)
    record("new.jsonl", groups=3, shift=0.4)
    play("other.jsonl", [1.0])
    found, refused = report("new.jsonl", baseline="base.jsonl"), report("new.jsonl", baseline="other.jsonl")
    titles = re.findall(r'"title": "(.*?)"', sections(found)["comparison"])

    assert ["What differs between the runs", "Metrics"] == titles[:2]
    assert found.refusal is None
    assert any("against the baseline" in line for line in found.headlines)
    assert "the sides differ" in (refused.refusal or "")
    assert "Not compared" in sections(refused)["comparison"]
    with pytest.raises(ReadError, match=r"none\.jsonl does not exist"):
        report("new.jsonl", baseline="none.jsonl")


def test_promotion_rules_are_shown_with_their_evidence() -> None:
    """
    Wrong rules are an error.
    """
    record("new.jsonl", groups=3)
    found = report("new.jsonl", rules={"aggregate": [{"metric": "success", "min": 0.99}]})

    assert "gate: inconclusive" in found.headlines  # one training run alone
    assert "success" in sections(found)["gate"]
    with pytest.raises(StudyError):
        report("new.jsonl", rules={"agregate": []})


def test_a_large_recording_is_not_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The report says which command does it.
    """
    monkeypatch.setattr(reporting, "MOST_EPISODES", 2)
    play("run.jsonl", [1.0] * 3)

    assert "run `mttp diagnose` on it" in sections(report("run.jsonl"))["diagnosis"]


def test_an_evaluation_has_the_figures_of_its_results() -> None:
    """
    Each sample of a task is a row with its score; one that raised is an error without a score, and no zero.
    """
    scores = {"a": 1.0, "b": 0.25, "d": 0.0}

    def answer(task: str) -> float:
        with mttp.step() as step:
            step.action(task)
        return scores[task]

    with (
        mttp.configure("file://evaluation.jsonl", run="sums", kind="eval"),
        mttp.evaluate("sums", tasks=["a", "b", "c", "d"], samples=2) as run,
    ):
        run.map(answer)
    found = report("evaluation.jsonl")
    summary, *_ = data(found)["overview"]["sections"]
    facts = {one["label"]: (one["value"], one["detail"]) for one in summary["blocks"][0]["items"]}
    rows = sorted(zip(column(found, "task"), column(found, "status"), column(found, "return"), strict=True))

    assert (8, "2 error") == facts["episodes"]
    assert (2, "2 ended by an error, no value") == facts["not counted"]
    assert (1.25 / 3, "n=6, standard deviation 0.4655") == pytest.approx(facts["mean return"])
    assert [("a", "completed", 1.0)] * 2 + [("b", "completed", 0.25)] * 2 == rows[:4]
    assert [("c", "error", None)] * 2 + [("d", "completed", 0.0)] * 2 == rows[4:]


def test_the_overview_is_markdown_too() -> None:
    """
    Its sections and tables, on standard output beside the file.
    """
    record("run.jsonl", groups=2)
    text = CliRunner().invoke(app, ["report", "run.jsonl", "--markdown"]).stdout

    assert Path("report.html").exists()
    assert ["### Summary", "### Over time"] == [line for line in text.splitlines() if line[:3] == "###"][:2]
    assert "| g0 | train/0 | 4 |" in text


def test_a_limit_is_a_number_of_episodes() -> None:
    """
    From 1 on.
    """
    with pytest.raises(ConfigureError, match="limit=0: give a number of episodes from 1 on"):
        report("run.jsonl", limit=0)


def test_a_report_is_shown_as_a_line() -> None:
    """
    With its number of episodes.
    """
    play("run.jsonl", [1.0])

    assert "<Report of 1 episodes, 1 in its table, 1 to open>" == repr(report("run.jsonl"))


# Content.


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "text"),
        ([{"role": "user", "content": "hi"}], "text"),
        (np.zeros(4), "array"),
        (np.zeros((20, 20)), "array"),
        (np.zeros((20, 20, 3), np.uint8), "picture"),
        (np.zeros((20, 20), np.uint8), "picture"),
        (np.zeros((8, 8, 3), np.uint8), "array"),
        (np.zeros((2000, 2000), np.uint8), "array"),
        (np.array(["a"]), "array"),
        ({"a": math.nan}, "json"),
        (3, "json"),
    ],
)
def test_content_has_a_kind(value: object, kind: str) -> None:
    """
    Small images are arrays, and so are huge ones.
    """
    (block,) = contents("observation", value)

    assert [kind] == [part["type"] for part in block["parts"]]
    json.dumps(block, allow_nan=False)


def test_pictures_of_messages_are_shown() -> None:
    """
    As what they are, and named in the text; one that is only a digest is only named.
    """
    url = "data:image/png;base64," + "QUJD" * 400
    forms: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 400}},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "QUJD" * 400},
        {"type": "image_url", "image_url": {"url": "data:image/png;bytes=1200;sha256=abc,"}},
    ]
    (shown,) = contents("", [{"role": "user", "content": [{"type": "text", "text": "Look."}, *forms]}])
    text, *pictures = shown["parts"]

    assert [url] * 4 == [picture["src"] for picture in pictures]
    words = ["Look.", *["[image/png, 1,200 bytes]"] * 4, "[image/png;bytes=1200;sha256=abc]"]
    assert words == text["text"].split("\n")


def test_a_call_repeats_nothing_of_its_step() -> None:
    """
    The messages of its only request are those of the step.
    """
    asked, said = ([{"role": role, "content": text}] for role, text in (("user", "2+2?"), ("assistant", "4")))
    call = mttp.model.Call(operation="chat", arguments=asked, history=(0, 1), result=said)
    with mttp.configure("file://a.jsonl") as session:
        session.record(mttp.Episode(steps=(mttp.Step(calls=(call,)),)))

    (page,) = pages(report("a.jsonl")).values()
    assert (["2+2?"], ["4"]) == (texts_of(page["blocks"], "user"), texts_of(page["blocks"], "assistant"))
    assert [] == blocks(page["blocks"], "call")


def test_frames_are_pictures() -> None:
    """
    The pixels of the PNG are those of the array.
    """
    matplotlib_image = pytest.importorskip("matplotlib.image")
    frame = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    (shown,) = contents("observation", frame)
    Path("frame.png").write_bytes(base64.b64decode(shown["parts"][0]["src"].partition(",")[2]))

    assert np.array_equal(
        frame, np.round(matplotlib_image.imread("frame.png")[..., :3] * 255).astype(np.uint8)
    )


# Tokens.


def values(tokens: Tokens) -> dict[str, Any]:
    found = token_block(tokens, None)
    return {"ids": found["ids"], "prompt": found["prompt_length"], **found["values"], "note": found["note"]}


def test_values_stand_beside_their_tokens() -> None:
    """
    Those of the completion, of all tokens, and of the sampled ones.
    """
    found = values(
        Tokens(
            prompt_ids=[7, 8],
            ids=[1, 2, 3],
            masks=[1, 0, 1],
            logprobs=[-1.0, -2.0, -3.0],
            advantages=[0.1, 0.2, 0.3, 0.4, 0.5],
            entropies=[5.0, 6.0],
            alignment={"entropies": "sampled"},
        )
    )

    assert ([7, 8, 1, 2, 3], 2) == (found["ids"], found["prompt"])
    assert [None, None, -1.0, -2.0, -3.0] == found["logprobs"]
    assert [0.1, 0.2, 0.3, 0.4, 0.5] == found["advantages"]
    assert [None, None, 5.0, None, 6.0] == found["entropies"]


def test_values_that_fit_no_tokens_are_named() -> None:
    """
    And not shown beside wrong ones.
    """
    found = values(Tokens(ids=[1, 2, 3], logprobs=[-1.0, -2.0], rewards=[math.nan, 1.0, math.inf]))

    assert "logprobs" not in found
    assert "not shown, since they fit no tokens: logprobs" in found["note"]
    assert [None, 1.0, None] == found["rewards"]


def test_tokens_without_ids_have_numbers() -> None:
    """
    The note says that the ids were not recorded.
    """
    found = values(Tokens(count=2, logprobs=[-1.0, -2.0]))

    assert ([-1, -1], [-1.0, -2.0]) == (found["ids"], found["logprobs"])
    assert "ids were not recorded" in found["note"]
    assert [] == token_block(Tokens(count=2), None)["ids"]


def test_a_tokenizer_gives_texts() -> None:
    """
    With leading spaces; what is no tokenizer is an error.
    """
    tokenizers = pytest.importorskip("tokenizers")
    from mttp.viewing.token_texts import load_tokenizer

    model = tokenizers.models.WordLevel({"hello": 0, "world": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save("tokenizer.json")

    assert ["hello", " world", "·"] == load_tokenizer(".")([0, 1, -1])
    Path("other.json").write_text("{}")
    with pytest.raises(ReadError, match="is not a tokenizer"):
        load_tokenizer("other.json")
    with pytest.raises(ReadError, match="does not exist"):
        load_tokenizer("none.json")


# The command.


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *arguments], prog_name="mttp")
    return result.exit_code, result.output


def test_the_command_writes_the_file_and_says_what_it_found() -> None:
    """
    Also as JSON.
    """
    record("new.jsonl", groups=3)
    code, output = run("new.jsonl", "-o", "new.html")
    _, text = run("new.jsonl", "--out", "new.html", "--json")
    document = json.loads(text)

    assert 0 == code
    assert output.startswith("wrote new.html (")
    assert {"file": "new.html", "episodes": 12, "pages": 12} == {
        key: document[key] for key in ("file", "episodes", "pages")
    }
    assert Path("new.html").stat().st_size == document["bytes"]


def test_exit_codes() -> None:
    """
    A refused comparison is 1, wrong usage and unreadable input 2.
    """
    record("new.jsonl", groups=3)
    play("other.jsonl", [1.0])

    assert 1 == run("new.jsonl", "--baseline", "other.jsonl")[0]
    assert 2 == run("none.jsonl")[0]
    assert 2 == run("new.jsonl", "--out", "none/new.html")[0]
    assert 2 == run("new.jsonl", "--limit", "0")[0]


def test_parts_of_an_included_spec_are_in_the_scale_of_the_reward() -> None:
    """
    One deeper, with weights and contributions that add up to those of their parent.
    """
    inner = mttp.RewardSpec(
        name="style",
        version="1.0.0",
        combine="weighted_sum",
        components=[
            {"name": "short", "kind": "rubric", "use": lambda text: 0.5, "weight": 3, "version": "1"},
            {"name": "rude", "kind": "penalty", "use": lambda text: 0.25, "version": "1"},
        ],
    )
    outer = mttp.RewardSpec(
        name="whole",
        version="1.0.0",
        combine="weighted_sum",
        components=[{"name": "right", "kind": "rubric", "use": lambda text: 1.0, "version": "1"}],
        include=[{"spec": inner, "as": "style", "weight": 0.1}],
    )
    with mttp.configure("file://parts.jsonl"), mttp.episode() as episode:
        episode.reward(outer.score(text="a"))

    (page,) = pages(report("parts.jsonl")).values()
    parts = [
        (one["name"], one["depth"], one["weight"], one["contribution"])
        for one in blocks(page["blocks"], "reward")[0]["components"]
    ]
    assert [
        ("right", 0, 1.0, 1.0),
        ("style", 0, 0.1, pytest.approx(0.125)),
        ("short", 1, pytest.approx(0.3), pytest.approx(0.15)),
        ("rude", 1, pytest.approx(0.1), pytest.approx(-0.025)),
    ] == parts


def test_texts_are_columns_of_the_list() -> None:
    """
    The ends of the first observation and of the actions, and the surprise of the sampled tokens.
    """
    with mttp.configure("file://texts.jsonl"), mttp.episode() as episode, episode.step() as step:
        step.observation("x" * 300 + "2+4=")
        step.action("6")
        step.tokens([1, 2, 3], logprobs=[-1.0, -2.0, -3.0])
    found = report("texts.jsonl")

    assert ["…" + "x" * 116 + "2+4="] == column(found, "prompt")
    assert [["x" * 300 + "2+4=", "6", ""]] == texts(found)
    assert ["6"] == column(found, "completion")
    assert [2.0] == pytest.approx(column(found, "surprise"))

"""Recordings that lack episodes of their runs, from every source; and recordings that only look so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reading.traces import write
from stores import Backend, JaegerServer, TempoServer, serving
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import ReadError, StudyError
from mttp.model.spans import SpanRecord
from mttp.reading import scan
from mttp.reading.recording import read_without
from mttp.study import compare, diagnose, gate
from mttp.testing import OtlpReceiver
from mttp.viewing import report
from mttp.viewing.index import EpisodeIndex

MISSING = "the run states 20 episodes, 5 are here (run r); means and rates are not the run's"
UNKNOWN = "not weighted: the sampling share of 5 of 5 episodes is unknown"
RULES = {"aggregate": [{"metric": "success", "min": 0.1}]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are those of a directory of the test."""
    monkeypatch.chdir(tmp_path)


def play(count: int, first: int = 0) -> list[str]:
    """Episodes of which each fourth one fails; their trace ids."""
    played = []
    for number in range(first, first + count):
        with mttp.episode(env="maths", task=f"t{number}", split="eval" if number % 2 else "train") as episode:
            episode.reward(float(number % 4 > 0))
            episode.end(outcome="success" if number % 4 else "failure", terminated=True)
        played.append(episode.trace_id)
    return played


def record(path: str, count: int = 20, **options: Any) -> str:
    """A recording of a run with so many episodes."""
    with mttp.configure(f"file://{path}", **{"run_id": "r", "kind": "eval", **options}):
        play(count)
    return path


def rotated(path: str) -> list[str]:
    """The paths of a recording of 20 episodes with three rotated parts."""
    with mttp.configure(f"file://{path}?max_bytes=1", run_id="r", kind="eval") as session:
        for number in range(3):
            play(5, first=5 * number)
            session.flush()
        play(5, first=15)
    return [path, *(str(Path(path).with_suffix(f".{number}.jsonl")) for number in range(1, 4))]


def thinned(path: str, out: str = "kept.jsonl", keep: int = 5) -> str:
    """The recording as tail sampling leaves it: the failures, and whatever is about no single episode."""
    episodes = sorted(mttp.read(path), key=lambda episode: episode.outcome or "")
    dropped = {episode.trace_id for episode in episodes[keep:]}
    return str(write(out, [span for span in scan(path, arrays=True) if span.trace_id not in dropped]))


@pytest.fixture
def sample() -> str:
    """A recording of 20 episodes of which the five failures are left."""
    return thinned(record("whole.jsonl"))


def missing(source: Any) -> list[str]:
    """What a source says about missing episodes: reading, summarizing and checking it say the same."""
    read, summarized, checked = (
        [problem.message for problem in found.problems if problem.kind == "missing_episodes"]
        for found in (mttp.read(source), mttp.summarize(source), mttp.check(source))
    )

    assert read == summarized == checked
    return read


class Memory:
    """Spans in memory, as a session holds them."""

    def __init__(self, spans: Iterable[SpanRecord]) -> None:
        self.spans = [*spans]

    def records(self) -> Iterable[SpanRecord]:
        return iter(self.spans)


def folder(sample: str) -> str:
    Path("runs").mkdir()
    return str(Path(sample).rename("runs/a.jsonl").parent)


def converted(to: str) -> Callable[[str], str]:
    def convert(sample: str) -> str:
        more = [] if Path(to).suffix else ["--partition"]
        done = CliRunner().invoke(app, ["convert", sample, to, *more])
        assert done.exit_code == 0, done.output
        return to

    return convert


def dataset(sample: str) -> str:
    return f"file://{Path(converted('dataset')(sample)).resolve()}"


def in_memory(sample: str) -> Any:
    return Memory(scan(sample, arrays=True))


# Samples.


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(str, id="file"),
        pytest.param(folder, id="folder"),
        pytest.param(lambda sample: [sample], id="list"),
        pytest.param(converted("a.parquet"), id="parquet"),
        pytest.param(dataset, id="dataset"),
        pytest.param(lambda sample: f"{dataset(sample)}?run=r", id="run"),
        pytest.param(in_memory, id="memory"),
    ],
)
def test_a_sample_is_a_problem_of_every_source(sample: str, of: Callable[[str], Any]) -> None:
    """
    The run's span was kept, and says how many episodes there were.
    """
    assert [MISSING] == missing(of(sample))


@pytest.mark.parametrize(
    ("scheme", "server", "options"),
    [("jaeger", JaegerServer, ""), ("tempo", TempoServer, "&wait=0")],
)
@pytest.mark.parametrize("run", ["run=r", ""])
def test_a_sample_in_a_store_is_a_problem(
    scheme: str, server: type[Backend], options: str, run: str, sample: str
) -> None:
    """
    Whether the run was asked for, or all runs; a search for some of its episodes is none.
    """
    backend = server()
    for span in scan(sample, arrays=True):
        backend.traces.setdefault(span.trace_id, []).append(span)
    with serving(backend) as place:
        assert [MISSING] == missing(f"{scheme}://{place}?{run}{options}")
        assert [] == missing(f"{scheme}://{place}?trace={mttp.read(sample)[0].trace_id}")


def test_a_run_that_sampling_of_mttp_thinned_out_says_so() -> None:
    """
    The file has all episodes; the collector those that the rules keep, and the number of all.
    """
    with OtlpReceiver() as receiver:
        sampling = mttp.Sampling(0.0, keep=["failure"])
        with mttp.configure([receiver.http_address, "file://a.jsonl"], sampling=sampling, run_id="r"):
            play(20)
        got = [*receiver.records()]

    assert [MISSING] == missing(Memory(got))
    assert [] == missing("a.jsonl")


def test_each_run_of_a_recording_is_counted_by_itself(sample: str) -> None:
    """
    Another whole run fills no gap.
    """
    record("b.jsonl", 30, run_id="other")

    assert [MISSING] == missing([sample, "b.jsonl"])
    with pytest.raises(ReadError, match="the run states 20 episodes, 5 are here"):
        mttp.read(sample, strict=True)


def test_a_problem_says_it_once_for_all_that_came_late() -> None:
    """
    Scores and preferences of episodes that were not kept have no problems of their own.
    """
    with mttp.configure("file://whole.jsonl", run_id="r"):
        played = play(20)
        mttp.score(played[1], 0.5, by="judge", components={"tone": 0.5})
        mttp.annotate(played[1], "checked", True)
        mttp.prefer(played[2], [played[3]])
        mttp.score(played[4], 0.5, by="judge")
    found = mttp.read(thinned("whole.jsonl"))

    assert [("missing_episodes", MISSING)] == [(one.kind, one.message) for one in found.problems]
    assert (4, 1) == (len(found.annotations), sum(bool(episode.annotations) for episode in found))


# Recordings that lack nothing.


def test_an_episode_without_an_end_is_here() -> None:
    """
    It was started, and its marker says so.
    """
    with mttp.configure("file://a.jsonl", run_id="r") as session, mttp.episode(), mttp.episode():
        session.close()

    assert (2, []) == (len(mttp.read("a.jsonl")), missing("a.jsonl"))


def test_a_run_that_goes_on_states_nothing_yet() -> None:
    """
    A growing file is no sample of itself, neither once read nor followed.
    """
    session = mttp.configure("file://a.jsonl", run_id="r")
    index = EpisodeIndex(["a.jsonl"])
    try:
        play(3)
        with mttp.episode(env="maths"):
            session.flush()
            index.refresh()
            assert ([], []) == (missing("a.jsonl"), index.problems)
            session.close()
            index.refresh()
            assert ([], []) == (missing("a.jsonl"), index.problems)
    finally:
        index.close()


def test_processes_state_their_own_episodes() -> None:
    """
    Of a resumed run each attempt, of a distributed one each process; a part of another process's episode is
    none of the own ones.
    """
    with mttp.configure("file://a.jsonl", run_id="r"), mttp.episode(env="maths"):
        carrier = mttp.inject()
    with mttp.configure("file://b.jsonl", run_id="r"):
        with mttp.extract(carrier) as part, part.step() as step:
            step.reward(1.0)
        play(2)
    record("c.jsonl", 3)

    counts = {source: mttp.read(source).runs[0].episode_count for source in ("a.jsonl", "b.jsonl", "c.jsonl")}
    assert {"a.jsonl": 1, "b.jsonl": 2, "c.jsonl": 3} == counts
    for source in ("a.jsonl", "b.jsonl", "c.jsonl", ["a.jsonl", "c.jsonl"], "."):
        assert [] == missing(source)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_states_its_own_episodes() -> None:
    """
    It counts from its fork on.
    """
    with mttp.configure("file://a.jsonl", run_id="r"):
        play(2)
        if (child := os.fork()) == 0:
            play(3, first=2)
            mttp.current_session().close()  # type: ignore[union-attr]  # it was configured above
            os._exit(0)
        os.waitpid(child, 0)
        play(1, first=5)

    assert [3, 3] == [run.episode_count for run in mttp.read("a.jsonl").runs]
    assert (6, []) == (len(mttp.read("a.jsonl")), missing("a.jsonl"))


def test_what_was_recorded_about_episodes_is_none() -> None:
    """
    A session that only scores, groups and learns has started no episode.
    """
    record("a.jsonl", 2)
    with mttp.configure("file://late.jsonl", run_id="r"):
        for episode in mttp.read("a.jsonl"):
            mttp.score(episode.trace_id, 1.0, by="judge")
        mttp.update(loss=1.0)

    assert ([], []) == (missing("late.jsonl"), missing(["a.jsonl", "late.jsonl"]))


def test_a_part_that_was_asked_for_is_no_sample() -> None:
    """
    One rotated part of several, some traces, some tasks, and a recording that was filtered.
    """
    parts = rotated("a.jsonl")[1:]
    place = dataset("a.jsonl")
    whole = mttp.read("a.jsonl")
    few = whole.filter(split="eval")

    assert (3, []) == (len(parts), [problem for part in parts for problem in missing(part)])
    assert ([], []) == (missing(f"{place}?task=t1"), missing(f"{place}?since=2020-01-01"))
    assert [] == read_without("a.jsonl", {whole[0].trace_id}).problems
    assert ([], []) == (few.problems, few.summary().problems)
    assert 10 == compare(few, few, metrics=["success"])["success"].n[0]


def test_parts_of_a_side_are_counted_together() -> None:
    """
    Each file alone lacks episodes, and all of them none; a file that is there twice counts once.
    """
    parts = rotated("a.jsonl")
    renamed = [str(Path(part).rename(f"part_{number}.jsonl")) for number, part in enumerate(parts)]
    lacking = [part for part in renamed if missing(part)]

    assert (4, 1, []) == (len(parts), len(lacking), missing(renamed))
    assert 20 == compare(renamed, renamed, metrics=["success"])["success"].n[0]
    assert 20 == compare([*renamed, *renamed], renamed, metrics=["success"])["success"].n[0]
    with pytest.raises(StudyError, match="the run states 20 episodes"):
        compare(lacking, renamed)


# What is computed of a sample says so.


def test_a_summary_says_first_that_its_figures_are_not_the_run_s(sample: str) -> None:
    """
    On a terminal, in Markdown and as JSON.
    """

    def printed(*options: str) -> str:
        done = CliRunner().invoke(app, ["summary", sample, *options], env={"COLUMNS": "200"})
        assert done.exit_code == 0
        return done.stdout

    assert f"warning: {MISSING}" == printed().splitlines()[2]
    assert f"**warning: {MISSING}**" == printed("--markdown").splitlines()[2]
    assert [MISSING] == json.loads(printed("--json"))["sampled"]
    assert [] == json.loads(CliRunner().invoke(app, ["summary", "whole.jsonl", "--json"]).stdout)["sampled"]


def test_a_check_of_a_sample_fails(sample: str) -> None:
    """
    By default, and not where problems are no reason; the document names it.
    """

    def checked(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["check", sample, *options], env={"COLUMNS": "200"})
        return done.exit_code, done.stdout

    assert checked()[0] == checked("--fail-on", "problems")[0] == 1
    assert checked("--fail-on", "violation,gradings,faults")[0] == 0
    assert MISSING in checked()[1]
    (problem,) = json.loads(checked("--json")[1])["problems"]
    assert ("missing_episodes", MISSING) == (problem["kind"], problem["message"])


def test_a_diagnosis_says_first_that_it_is_not_the_run_s(sample: str) -> None:
    """
    On a terminal, in Markdown and as JSON.
    """

    def printed(*options: str) -> str:
        return CliRunner().invoke(app, ["diagnose", sample, *options], env={"COLUMNS": "200"}).stdout

    assert f"warning: {MISSING}" == printed().splitlines()[0]
    assert f"**warning: {MISSING}**" == printed("--markdown").splitlines()[0]
    assert [MISSING] == json.loads(printed("--json"))["sampled"]
    assert () == diagnose("whole.jsonl").sampled


def notes(html: str) -> Iterator[str]:
    """The notes that a page's sections begin with."""
    start = html.index("{", html.index('id="mttp-report"'))
    document, _ = json.JSONDecoder().raw_decode(html[start:])
    for section in document["overview"]["sections"]:
        if section["blocks"][0]["type"] == "note":
            yield section["blocks"][0]["text"]


@pytest.mark.parametrize("limit", [100, 3])
def test_a_page_says_first_that_its_figures_are_not_the_run_s(sample: str, limit: int) -> None:
    """
    At the summary and at the diagnosis, also where the page has only some of the episodes.
    """
    assert [MISSING, MISSING] == [
        text.removeprefix("warning: ")
        for text in notes(report(sample, limit=limit).html)
        if text.endswith(MISSING)
    ]
    assert not [text for text in notes(report("whole.jsonl", limit=limit).html) if "states" in text]


def test_a_live_page_says_first_that_its_figures_are_not_the_run_s(sample: str) -> None:
    """
    As soon as all that was there at first is read.
    """
    index = EpisodeIndex([sample])
    try:
        index.refresh()
        assert [MISSING] == [problem.message for problem in index.problems]
    finally:
        index.close()


def test_a_comparison_refuses_a_sample_on_either_side(sample: str) -> None:
    """
    Unless it is allowed, which a note says; values are refused as files are.
    """
    sides = (sample, "whole.jsonl"), ("whole.jsonl", sample), ("whole.jsonl", mttp.read(sample))
    for base, candidate in sides:
        with pytest.raises(StudyError, match=r"kept.jsonl: the run states 20 episodes, 5 are here.*sampled"):
            compare(base, candidate, allow=["tasks"])
    found = compare("whole.jsonl", sample, allow=["tasks", "sampled"])

    assert f"candidate: {MISSING}" in found.notes
    arguments = ["compare", "whole.jsonl", sample, "--allow", "tasks"]
    refused, allowed = (CliRunner().invoke(app, [*arguments, *more]) for more in ((), ("--allow", "sampled")))
    assert (2, 0) == (refused.exit_code, allowed.exit_code)


def test_a_gate_refuses_a_sample_on_either_side(sample: str) -> None:
    """
    With and without a baseline, unless the rules allow it, which a note says.
    """
    for candidate, baseline in ((sample, None), (sample, "whole.jsonl"), ("whole.jsonl", sample)):
        with pytest.raises(StudyError, match=r"the run states 20 .*`allow: \[sampled\]` in the rules"):
            gate(candidate, rules={**RULES, "allow": ["tasks"]}, baseline=baseline)
    allowed = {**RULES, "allow": ["sampled"]}

    assert (MISSING, f"each episode counts once; {UNKNOWN}") == gate(sample, rules=allowed).notes
    Path("rules.yaml").write_text(json.dumps(RULES))
    assert 3 == CliRunner().invoke(app, ["gate", sample, "--rules", "rules.yaml"]).exit_code


# Weights.


@pytest.fixture
def weighed() -> str:
    """What a collector has of a run of which it gets all failures, and half of the successes."""
    with OtlpReceiver() as receiver:
        sampling = mttp.Sampling(0.5, keep=["failure"])
        with mttp.configure(receiver.http_address, sampling=sampling, run_id="r", kind="eval"):
            for number in range(40):
                with mttp.episode(env="maths", task=f"t{number}", group=f"g{number}") as episode:
                    episode.reward(float(number % 4 > 0))
                    episode.end(outcome="success" if number % 4 else "failure", terminated=True)
        return str(write("weighed.jsonl", [*receiver.records()]))


def summary(path: str) -> dict[str, Any]:
    """The figures of a recording as the document has them."""
    done = CliRunner().invoke(app, ["summary", path, "--json"])
    totals: dict[str, Any] = json.loads(done.stdout)["totals"]
    return totals


@pytest.mark.parametrize("to", ["", "a.parquet", "dataset"])
def test_a_summary_weights_a_sample_by_its_shares(weighed: str, to: str) -> None:
    """
    Ten failures stand for ten, each success for two; a mean that counts each once has no interval.
    """
    path = converted(to)(weighed) if to else weighed
    totals = summary(path)
    count = totals["outcome"]["success"]
    mean = 2 * count / (10 + 2 * count)

    assert totals["outcome"]["failure"] == 10
    assert 5 < count < 25
    for name in ("return", "success"):
        weighted = totals["weighted"][name]
        assert (mean, 10 + count, 10 + 2 * count) == pytest.approx(
            (weighted["mean"], weighted["count"], weighted["stands_for"])
        )
        assert (10 + 2 * count) ** 2 / (10 + 4 * count) == pytest.approx(weighted["effective"])
    assert totals["return"]["interval"] is None
    assert "weighted" in totals["return"]["interval_reason"]
    text = CliRunner().invoke(app, ["summary", path], env={"COLUMNS": "200"}).stdout
    assert f"weighted  by 1/share: mean return {mean:.4g}" in text


def test_a_sample_without_shares_is_not_weighted_and_says_why(sample: str, weighed: str) -> None:
    """
    One of two runs may state them: each run has its own figures, and both together have none.
    """
    alone, whole = summary(sample)["weighted"], summary("whole.jsonl")["weighted"]
    record("other.jsonl", run_id="other")
    thinned("other.jsonl", "both.jsonl")
    done = CliRunner().invoke(app, ["summary", "both.jsonl", weighed, "--json"])
    runs = {run["id"]: run["weighted"] for run in json.loads(done.stdout)["runs"]}

    assert (UNKNOWN, None, None) == (alone["text"], alone["return"], alone["method"])
    assert whole is None
    assert runs["other"]["text"] == UNKNOWN
    assert runs["r"]["reason"] is None
    assert "5 of" in json.loads(done.stdout)["totals"]["weighted"]["reason"]


def test_studies_say_what_a_sample_says_if_it_is_weighted(weighed: str) -> None:
    """
    From a file and from values alike; their own figures count each episode once.
    """
    text = f"each episode counts once; {summary(weighed)['weighted']['text']}"
    record("base.jsonl", 40, run_id="base")
    for candidate in (weighed, mttp.read(weighed)):
        found = compare("base.jsonl", candidate, allow=["tasks", "sampled"])
        assert [f"candidate: {text}"] == [note for note in found.notes if "1/share" in note]
        assert text in gate(candidate, rules={**RULES, "allow": ["sampled"]}).notes

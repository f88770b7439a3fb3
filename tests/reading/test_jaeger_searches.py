"""The searches of Jaeger in docs/backends.md, on the spans of a run with an episode of each kind."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path

import pytest

import mttp
from mttp.model.spans import SpanRecord
from mttp.recording import configuration

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
ROW = re.compile(r"\| (?P<question>[^|]+\?) \| (?:`(?P<operation>[^`]+)`)? ?\| (?:`(?P<tags>[^`]+)`)? ?\|")


def searches() -> dict[str, tuple[str | None, dict[str, str]]]:
    """Operation and tags of each question."""
    return {
        row["question"]: (row["operation"], dict(tag.split("=") for tag in (row["tags"] or "").split()))
        for row in ROW.finditer(PAGE.read_text())
    }


def text(value: object) -> str:
    """A value as Jaeger compares it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_match(span: SpanRecord, operation: str | None, tags: dict[str, str]) -> bool:
    """Whether a span has the name and all tags, each in itself or in its resource."""
    values = {**span.scope.resource, **span.attributes}
    return operation in (None, span.name) and all(
        text(values.get(key, "")) == value for key, value in tags.items()
    )


@pytest.fixture(scope="module")
def spans() -> list[SpanRecord]:
    """The spans of a run."""
    spec = mttp.model.Spec(name="math", version="1.2.0")
    with mttp.configure("memory://", run_id="bbf99b8bf65ff505", provenance=False) as session:
        with mttp.group("g1") as group:
            for outcome in ("success", "failure"):
                with mttp.episode(env=outcome, task="train/16", group=group) as episode:
                    with episode.step() as step, suppress(TimeoutError), step.tool_call("search"):
                        raise TimeoutError
                    episode.end(outcome=outcome)
        with mttp.episode(env="aborted", policy_version=41) as episode:
            episode.end(status="aborted")
        with pytest.raises(RuntimeError), mttp.episode(env="error", task="train/17"):
            raise RuntimeError
        with mttp.episode(env="scored") as episode:
            episode.reward(math.nan, spec=spec)
        mttp.update(1, loss=0.5)
    configuration.forget()
    return list(session.records())


def answers(spans: list[SpanRecord], question: str) -> set[str]:
    """The names of the roots of the traces that a search finds."""
    search = searches()[question]
    traces = {span.trace_id for span in spans if is_match(span, *search)}
    return {span.name for span in spans if span.trace_id in traces and not span.parent_id}


EPISODES = {f"episode {env}" for env in ("success", "failure", "aborted", "error", "scored")}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What does a run have?", {*EPISODES, "group", "update", "run"}),
        ("Which completed episodes does a run have?", EPISODES - {"episode aborted", "episode error"}),
        ("Which failed?", {"episode failure"}),
        ("Which were aborted?", {"episode aborted"}),
        ("Which ended in an error?", {"episode error"}),
        ("Which episodes have a task?", {"episode error"}),
        ("Who are the completed members of a group?", {"episode success", "episode failure"}),
        ("What does a group have, members and group?", {"episode success", "episode failure", "group"}),
        ("Which episodes has a version of the policy?", {"episode aborted"}),
        ("Which scorings failed?", {"episode scored"}),
        ("Which scorings has a version of the reward spec?", {"episode scored"}),
        ("Which updates did the optimizer make?", {"update"}),
    ],
)
def test_a_documented_search_finds_what_it_says(
    spans: list[SpanRecord], question: str, expected: set[str]
) -> None:
    """
    No more and no less: a tool call that failed is no failed episode, and a group is no member.
    """
    assert expected == answers(spans, question)


def test_every_documented_search_is_tested() -> None:
    """
    A new row needs a case above.
    """
    tested = test_a_documented_search_finds_what_it_says.pytestmark[0].args[1]  # type: ignore[attr-defined]

    assert [question for question, _ in tested] == list(searches())

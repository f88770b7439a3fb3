"""Facts about the convention itself that no single definition states."""

import pytest
from semconv.registry import REGISTRY
from tool.resolve import resolve

SPANS = {
    signal.definition.name: {attribute.definition.key: attribute for attribute in signal.attributes}
    for signal in resolve(REGISTRY)
    if signal.definition.section == "spans"
}
WITHIN_AN_EPISODE = (
    "mttp.episode",
    "mttp.episode.start",
    "mttp.segment",
    "mttp.step",
    "mttp.steps",
    "mttp.agent",
    "mttp.tool_call",
    "mttp.reward",
)
OF_ANY_SCORE = ("mttp.model_call", "mttp.grade")


@pytest.mark.parametrize("span", SPANS)
def test_every_span_says_which_run_it_belongs_to(span):
    """
    A span can be placed without its tree.
    """
    expected = "required"

    assert expected == SPANS[span]["mttp.run.id"].requirement_level


@pytest.mark.parametrize("span", WITHIN_AN_EPISODE)
def test_every_span_of_an_episode_says_which_one(span):
    """
    A span of an episode can be placed before its root has arrived.
    """
    expected = "required"

    assert expected == SPANS[span]["mttp.episode.id"].requirement_level


@pytest.mark.parametrize("span", OF_ANY_SCORE)
def test_a_part_of_a_score_says_its_episode_unless_the_score_came_later(span):
    """
    A late score is a trace of its own, which names the episode once.
    """
    assert "conditionally_required" in SPANS[span]["mttp.episode.id"].requirement_level


@pytest.mark.parametrize(
    ("start", "whole"), [("mttp.run.start", "mttp.run"), ("mttp.episode.start", "mttp.episode")]
)
def test_start_marker_states_nothing_that_its_root_does_not(start, whole):
    """
    What an unfinished run or episode is known by, a finished one is known by too.
    """
    assert SPANS[start].keys() <= SPANS[whole].keys()


def test_no_name_is_squatted():
    """
    Our names are in our namespace; no `rl` name is used before those are accepted.
    """
    reused = {attribute.key.split(".")[0] for attribute in REGISTRY.upstream}

    assert {"mttp"} == {attribute.key.split(".")[0] for attribute in REGISTRY.attributes}
    assert not reused & {"mttp", "rl"}


def test_arrays_are_in_the_plural():
    """
    An array is named in the plural, but for those whose entries make one thing.
    """
    one_thing = {"mttp.token.parent", "mttp.reward.range"}
    arrays = [attribute.key for attribute in REGISTRY.attributes if attribute.type.endswith("[]")]
    singular = [key for key in arrays if not key.endswith("s") and not key.endswith(".shape")]

    assert one_thing == set(singular)


def test_every_attribute_is_explained_in_a_sentence():
    """
    A brief begins with a capital or a code and ends with a full stop.
    """
    briefs = [attribute.brief for attribute in (*REGISTRY.attributes, *REGISTRY.upstream)]
    odd = [
        brief for brief in briefs if not brief.endswith(".") or not (brief[0].isupper() or brief[0] in "`1")
    ]

    assert not odd


def test_every_text_is_decided_to_be_content_or_not():
    """
    A new text attribute must state whether it is content.
    """
    texts = [
        attribute
        for attribute in (*REGISTRY.attributes, *REGISTRY.upstream)
        if not attribute.members and attribute.value_type in ("string", "string[]", "any", "bytes")
    ]
    undecided = [
        attribute.key for attribute in texts if "content" not in attribute.annotations.get("mttp", {})
    ]

    assert texts
    assert [] == undecided

"""Digests of specs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rewards.specimens import SPEC, changed, load, small

import mttp
from mttp.rewards.parsing import parse
from mttp.rewards.spec import RewardSpec

KINDS = ["verifier", "rubric", "shaping", "penalty", "judge", "check"]
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
NUMBERS = st.integers(-1000, 1000).map(lambda number: number / 8)
RANGES = st.tuples(NUMBERS, NUMBERS).map(lambda ends: sorted(ends))


@st.composite
def entries(draw: Any, name: str) -> dict[str, Any]:
    """A component as in a file."""
    optional = {
        "weight": NUMBERS,
        "range": RANGES,
        "clip": st.booleans(),
        "params": st.dictionaries(NAMES, NUMBERS | st.text(max_size=5) | st.none(), max_size=2),
        "repeats": st.integers(1, 5),
        "priority": st.integers(0, 3),
        "description": st.text(max_size=9),
        "timeout": st.floats(0.1, 9),
        "version": st.sampled_from(["1", "2"]),
    }
    said = draw(st.fixed_dictionaries({"kind": st.sampled_from(KINDS)}, optional=optional))
    return {"name": name, "use": f"graders:{draw(st.sampled_from('fgh'))}", **said}


@st.composite
def documents(draw: Any) -> dict[str, Any]:
    """A spec's document."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    optional = {
        "description": st.text(max_size=9),
        "combine": st.sampled_from(["gated", "weighted_sum", "product", "minimum", "lexicographic"]),
        "floor": NUMBERS,
        "range": RANGES,
        "clip": st.booleans(),
        "partial_credit": NUMBERS,
        "on_invalid": st.sampled_from(["invalid", "floor", "skip"]),
        "inputs": st.dictionaries(
            st.sampled_from(["completion", "answer"]), st.sampled_from(["string", "any?"])
        ),
    }
    said = draw(st.fixed_dictionaries({}, optional=optional))
    components = [draw(entries(name)) for name in names]
    return {"mttp": "reward-spec/1", "name": "made", "version": "1.0.0", "components": components, **said}


def shuffled(draw: Any, value: Any) -> Any:
    """The document with its keys in another order."""
    if isinstance(value, dict):
        return {key: shuffled(draw, value[key]) for key in draw(st.permutations(list(value)))}
    return [shuffled(draw, item) for item in value] if isinstance(value, list) else value


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents(), st.data())
def test_the_order_of_keys_and_components_changes_nothing(document, data):
    """
    YAML, JSON and indentation do not change the digest either.
    """
    other = shuffled(data.draw, document)
    other["components"] = data.draw(st.permutations(other["components"]))
    expected = RewardSpec.from_dict(document).sha256

    assert expected == RewardSpec.from_dict(other).sha256
    assert (
        expected
        == RewardSpec.from_text(json.dumps(other, indent=data.draw(st.sampled_from([None, 3])))).sha256
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_a_spec_is_the_same_through_yaml_json_and_a_dictionary(document):
    """
    Document and digest are equal.
    """
    spec = RewardSpec.from_dict(document)
    others = [
        RewardSpec.from_text(spec.to_yaml()),
        RewardSpec.from_text(spec.to_json()),
        RewardSpec.from_dict(spec.to_dict()),
    ]

    assert [spec.document] * 3 == [other.document for other in others]
    assert [spec.canonical] * 3 == [other.canonical for other in others]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_stating_every_default_equals_leaving_them_out(document):
    """
    A document with all defaults written out has the same digest.
    """
    spec = RewardSpec.from_dict(document)
    stated = spec.document.model_dump(mode="json", by_alias=True)

    assert spec.sha256 == RewardSpec.from_dict(stated).sha256


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents(), st.data())
def test_any_change_that_matters_changes_the_digest(document, data):
    """
    Weights, ranges, parameters, names, targets, kinds, floor and `on_invalid` change it.
    """
    entry = dict(data.draw(st.sampled_from(document["components"])))
    new = (
        {
            "name": "another",
            "use": "graders:other",
            "kind": next(
                kind for kind in KINDS if kind != entry["kind"] and "check" not in (kind, entry["kind"])
            ),
            "range": [-5000.0, 5000.0],
            "clip": not entry.get("clip", False),
            "repeats": entry.get("repeats", 1) + 1,
            "params": {**entry.get("params", {}), "more": 1},
            "timeout": 77.0,
            "version": "3",
        }
        if entry["kind"] != "check"
        else {"use": "graders:other", "name": "another", "params": {"more": 1}}
    )
    key = data.draw(st.sampled_from(sorted(new)))
    components = [
        entry | {key: new[key]} if one["name"] == entry["name"] else one for one in document["components"]
    ]
    before = RewardSpec.from_dict(document).sha256

    assert before != RewardSpec.from_dict(document | {"components": components}).sha256
    assert before != RewardSpec.from_dict(document | {"floor": -7777.0}).sha256


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: gsm8k", "name: another"),
        ("version: 1.2.0", "version: 9.0.0"),
        ("combine: weighted_sum", "combine: weighted_sum  # as published"),
        ("combine: weighted_sum", "combine: weighted_sum\ndescription: of toys"),
        ("kind: exploit", "kind: near-miss"),
        ("max: 0.7", "max: 0.6"),
        ("  - {better: right, than: number-soup}\n", ""),
        ("weight: 0.5", "weight: 0.50"),
        ("weight: 0.5", "weight: 5e-1"),
        ("weight: 0.5", 'weight: 0.5, description: "x"'),
        ("range: [0, 1]}\n  - {name: format", "range: [0.0, 1.0], threshold: 1}\n  - {name: format"),
        ("combine: weighted_sum", "combine: weighted_sum\nfloor: 0"),
        ("combine: weighted_sum", "combine: weighted_sum\nrange: [0, 1]"),
        ("combine: weighted_sum", "combine: weighted_sum\non_invalid: invalid\nclip: false"),
    ],
    ids=lambda part: part[-24:],
)
def test_what_changes_no_score_changes_no_digest(old, new):
    """
    Names, versions, descriptions, comments, cases, number formats and stated defaults do not.
    """
    specs = [RewardSpec.from_text(text) for text in (SPEC, changed(old, new))]

    assert specs[0].sha256 == specs[1].sha256


def test_the_digest_is_this_one():
    """
    It is equal on every machine, Python version and release.
    """
    assert EXPECTED == RewardSpec.from_text(SPEC).sha256


EXPECTED = "a0bdfacf774af737fb9571e2ca2a347bea41753893b3ba282962f3dda844867a"


def test_the_order_of_inputs_counts_where_they_are_taken_by_position():
    """
    Swapped `(output, truth)` is another reward.
    """
    component = {"name": "right", "kind": "verifier", "use": "graders:f", "arity": "output-truth"}
    one, other = (
        RewardSpec.from_dict(small(components=[component], inputs=inputs))
        for inputs in ({"output": "any", "truth": "any"}, {"truth": "any", "output": "any"})
    )

    assert one.sha256 != other.sha256


def test_numbers_that_json_can_not_hold_are_refused():
    """
    Canonical JSON has no integers beyond 2**53.
    """
    component = {"name": "right", "kind": "verifier", "use": "graders:f", "params": {"seed": 2**60}}

    with pytest.raises(mttp.errors.SpecError, match="an integer beyond 2"):
        assert RewardSpec.from_dict(small(components=[component])).sha256


def test_a_recorded_reward_has_all_three():
    """
    Name, version, digests and coverage are on each reward, the document once on the run.
    """
    spec = load()
    with mttp.configure(transport="memory://") as session:
        for _ in range(2):
            with mttp.episode() as episode:
                episode.reward(spec.score(completion="<think></think><answer>8</answer>", answer="8"))

    recording = mttp.read(session)
    (document,) = recording.runs[0].spec_documents

    assert [spec.identity, spec.identity] == [episode.reward.spec for episode in recording.episodes]
    assert "full" == spec.identity.code_coverage
    assert spec.document == RewardSpec.from_dict(parse(document).data).document

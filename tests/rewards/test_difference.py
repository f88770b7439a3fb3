"""What changed between two specs, and the version that it deserves."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewards.specimens import GRADERS, HELPERS, SPEC, changed, load

from mttp.rewards.difference import deserved, differences, is_enough, stated
from mttp.rewards.spec import RewardSpec


def after(old: str, new: str) -> RewardSpec:
    """The specimen with one thing in its document changed."""
    return load("after", spec=changed(old, new))


@pytest.mark.parametrize(
    ("old", "new", "what", "bump"),
    [
        ("kind: check", "kind: penalty, range: [0, 1]", "components.no-tool-abuse.kind", "major"),
        ("name: language", "name: tongue", "components.language", "major"),
        ("combine: weighted_sum", "combine: gated", "combine", "major"),
        ("combine: weighted_sum", "combine: weighted_sum\nfloor: -1", "floor", "major"),
        ("combine: weighted_sum", "combine: weighted_sum\non_invalid: skip", "on_invalid", "major"),
        ("answer: string}", "answer: string, hint: string}", "inputs.hint", "major"),
        ("answer: string}", "answer: string, hint: string?}", "inputs.hint", "minor"),
        ("answer: string}", "answer: any}", "inputs.answer", "major"),
        ("weight: 0.5", "weight: 0.5, repeats: 3", "components.math.repeats", "minor"),
        ("weight: 0.5", "weight: 0.5, params: {}", None, "none"),
        ("graders:language_reward", "graders:format_reward", "components.language.use", "minor"),
        ("max: 0.7", "max: 0.6", "cases", "patch"),
        ("combine: weighted_sum", "combine: weighted_sum\ndescription: toys", "description", "patch"),
        ("version: 1.2.0", "version: 1.2.0  # still", None, "none"),
    ],
    ids=lambda part: str(part)[-20:],
)
def test_a_change_deserves_a_version(old, new, what, bump):
    """
    major where rewards mean something else, minor for other numbers, patch where every score stays.
    """
    found = differences(load(), after(old, new))

    assert bump == deserved(found)
    assert what is None or what in [one.what for one in found]


def test_what_changed_says_before_and_after():
    """
    A weight that moves the reachable reward moves the range with it.
    """
    found = {
        one.what: (one.before, one.after) for one in differences(load(), after("weight: 0.3", "weight: 0.4"))
    }

    assert {"components.format.weight": (0.3, 0.4), "range": ([0, 1], [0, 1.1])} == found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"helpers": changed("SCALE = 1.0", "SCALE = 2.0", HELPERS)}, ["code.helpers.py"]),
        ({"graders": changed("return 1.0\n", "return 0.5\n", GRADERS)}, ["code.graders.py"]),
        ({"graders": f"# a comment\n{GRADERS}"}, ["code.graders.py"]),
        ({"graders": GRADERS.replace("\n", "\r\n")}, []),
    ],
    ids=["constant", "grader", "comment", "line endings"],
)
def test_changed_code_is_named(texts, expected):
    """
    By the file that changed, which deserves a minor version.
    """
    found = differences(load(), load("after", **texts))

    assert [(what, "minor") for what in expected] == [(one.what, one.bump) for one in found]


def test_changes_of_an_include_are_those_of_the_whole():
    """
    Under the include's name.
    """
    include = changed("combine:", "include: [{spec: inner.yaml, as: inner, weight: 0.1}]\ncombine:")
    specs = []
    for folder, inner in (("one", SPEC), ("two", changed("weight: 0.3", "weight: 0.2"))):
        Path(folder).mkdir()
        Path(folder, "inner.yaml").write_text(changed("name: gsm8k", "name: inner", inner))
        specs.append(load(folder, spec=include))

    found = [one.what for one in differences(*specs)]

    assert "include.inner.components.format.weight" in found


@pytest.mark.parametrize(
    ("before", "later", "expected"),
    [
        ("1.2.0", "2.0.0", "major"),
        ("1.2.0", "1.3.0", "minor"),
        ("1.2.0", "1.2.1", "patch"),
        ("1.2.0", "1.2.0", "none"),
        ("1.2.0", "1.1.9", None),
        ("1.2.0-rc.1", "1.2.0", "patch"),
    ],
)
def test_what_was_raised_is_read_from_the_versions(before, later, expected):
    """
    None where it went down.
    """
    one, other = (RewardSpec.from_text(changed("1.2.0", number)) for number in (before, later))

    assert expected == stated(one, other)


def test_a_version_is_enough_if_it_was_raised_as_far():
    """
    Or further.
    """
    before = load()
    specs = [after("weight: 0.5", "weight: 0.5, repeats: 2")]
    specs += [
        load("later", spec=changed("1.2.0", number, changed("weight: 0.5", "weight: 0.5, repeats: 2")))
        for number in ("1.3.0", "2.0.0")
    ]

    assert [False, True, True] == [is_enough(before, spec, differences(before, spec)) for spec in specs]

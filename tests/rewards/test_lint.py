"""Lint rules, each with specs that break it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rewards.factories import component, spec
from rewards.specimens import GRADERS, SPEC, changed, load, write

from mttp.rewards.lint import RULES, lint

MATH = 'use: "graders:math_reward", weight: 0.5, range: [0, 1]'
CHECK = '  - {name: no-tool-abuse, kind: check, use: "graders:no_tool_abuse"}\n'
RUBRICS = "".join(
    f'  - {{name: r{n}, kind: rubric, use: "graders:language_reward", weight: 0.0625, range: [0, 1]}}\n'
    for n in range(4)
)
STEPS = '\n  - {name: near, kind: shaping, use: "graders:language_reward", range: [0, 0.1], scope: step}'
JUDGE = """\
mttp: reward-spec/1
name: taste
version: 1.0.0
components:
  - {name: taste, kind: judge, use: "graders:language_reward", range: [0, 1]}
combine: weighted_sum
"""

BROKEN = [
    ("weights", "error", "weight: 0.3", "weight: -0.3", 7, "the negative weight -0.3"),
    ("weights", "warning", "weight: 0.3", "weight: 0.4", 5, "add up to 1.1"),
    ("weights", "warning", 'tool_abuse"', 'tool_abuse", weight: 2', 9, "has no effect"),
    ("unreachable", "error", "weight: 0.3", "weight: 0", 7, "has the weight 0"),
    ("unreachable", "error", MATH, MATH.replace("[0, 1]", "[1, 1]"), 6, "has one value, 1"),
    ("unreachable", "error", MATH, f"{MATH}, threshold: 2", 6, "never passes: its threshold is 2"),
    ("unreachable", "error", 'tool_abuse"', 'tool_abuse", threshold: 0', 9, "no-tool-abuse never fails"),
    ("unreachable", "error", 'tool_abuse"', 'tool_abuse", range: [1, 5], threshold: 1', 9, "never fails"),
    ("unreachable", "error", 'tool_abuse"', 'tool_abuse", threshold: 1.5', 9, "no-tool-abuse never passes"),
    (
        "void-gate",
        "error",
        "combine: weighted_sum",
        "combine: gated\npartial_credit: 1.0",
        11,
        "`partial_credit` is 1 and the highest reward is 1, so a failed verifier lowers nothing",
    ),
    (
        "void-gate",
        "warning",
        "combine: weighted_sum",
        "combine: gated\npartial_credit: 0.75",
        11,
        "at most 0.5, so verifiers that only pass or fail lower nothing",
    ),
    (
        "heavy-judge",
        "warning",
        'format, kind: rubric, use: "graders:format_reward", weight: 0.3',
        'format, kind: judge, use: "graders:format_reward", weight: 0.75',
        7,
        "judges can give 0.75, which is more than the 0.5 of the verifiers",
    ),
    (
        "large-penalty",
        "warning",
        'format, kind: rubric, use: "graders:format_reward", weight: 0.3',
        'format, kind: penalty, use: "graders:format_reward", weight: 0.75',
        7,
        "penalties can subtract 0.75, and the other components give at most 0.7",
    ),
    ("large-shaping", "error", 'language_reward"', 'language_reward", scope: step', 8, "200 steps can give"),
    ("large-shaping", "warning", 'tool_abuse"}', 'tool_abuse"}' + STEPS, 10, "set `horizon`"),
    ("misspelt-input", "warning", "graders:language_reward", "graders:misspelt", 8, "the input 'completion'"),
    (
        "misspelt-input",
        "warning",
        'graders:language_reward"',
        'graders:anyhow", params: {anwser: 8}',
        8,
        "the parameter 'anwser', and the spec has the input 'answer'",
    ),
    ("unreachable", "warning", "weighted_sum", "lexicographic", 6, "no priority"),
    ("nothing-gates", "warning", "kind: verifier", "kind: rubric", 10, "the spec has no verifier"),
    ("large-shaping", "error", "kind: verifier", "kind: shaping", 6, "shaping can give"),
    ("many-criteria", "warning", CHECK, f"{CHECK}{RUBRICS}", 13, "has 6 rubric criteria"),
    (
        "bundled-criterion",
        "warning",
        "name: format",
        "name: short-and-sweet",
        7,
        "the name of short-and-sweet has two criteria",
    ),
    (
        "bundled-criterion",
        "warning",
        "weight: 0.3",
        'weight: 0.3, description: "short and sweet"',
        7,
        "the description of format has two criteria",
    ),
    (
        "unusual-policy",
        "warning",
        "combine: weighted_sum",
        "combine: product\non_invalid: skip",
        11,
        "counts as 1",
    ),
    (
        "unusual-policy",
        "warning",
        "combine: weighted_sum",
        "combine: lexicographic\non_invalid: skip",
        11,
        "nothing is skipped",
    ),
    ("no-exploit", "warning", "kind: exploit", "kind: unusual", 11, "no case has the kind exploit"),
    (
        "no-range",
        "error",
        f"{MATH}",
        MATH.replace(", range: [0, 1]", ""),
        6,
        "the floor of a failed no-tool-abuse may not be the lowest reward",
    ),
    (
        "style-over-substance",
        "warning",
        "weight: 0.3",
        "weight: 0.4",
        7,
        "rubrics and shaping can give 0.6 and verifiers 0.5",
    ),
    (
        "high-floor",
        "error",
        "combine: weighted_sum",
        "combine: weighted_sum\nfloor: 0.25",
        11,
        "a sample that fails a gate gets 0.25",
    ),
    ("unread-code", "warning", "graders:language_reward", "made:anything", 8, "made uses exec"),
    ("unread-code", "warning", "graders:language_reward", "foreign:foreign", 8, "wrapt, which is not listed"),
    (
        "impossible-case",
        "error",
        'answer: "8"}\n    expect: {value: 1.0}',
        "answer: 8}\n    expect: {}",
        14,
        "quote it",
    ),
    ("impossible-case", "error", "value: 1.0", "value: 1.5", 15, "outside of the spec's range [0, 1]"),
    ("impossible-case", "error", "max: 0.7", "max: -1", 19, "outside of the spec's range"),
    (
        "impossible-case",
        "error",
        "value: 1.0",
        "failed_checks: [leak]",
        15,
        "name one of its checks: no-tool-abuse",
    ),
    ("impossible-case", "error", "value: 1.0", "components: {maths: 1}", 15, "which is not a component"),
    ("other-kind", "warning", "graders:language_reward", "graders:decorated", 8, "decorated as a shaping"),
]
MORE = (
    GRADERS
    + """

import mttp


def misspelt(answer, completions=""):
    return float(len(completions) > 3)


def anyhow(completion, **rest):
    return 1.0


@mttp.rewards.shaping
def decorated(completion):
    return 1.0
"""
)


@pytest.fixture(autouse=True)
def modules() -> None:
    """Modules beside the spec whose code is not read, or not all of it."""
    write()
    Path("specs/foreign.py").write_text("import wrapt\n\n\ndef foreign(completion):\n    return wrapt.x\n")
    Path("specs/made.py").write_text("exec('def anything(completion): return 1.0')\n")


def test_the_specimen_breaks_none():
    """
    The spec in the documentation has no findings.
    """
    assert [] == lint(load())


@pytest.mark.parametrize(
    ("rule", "severity", "old", "new", "line", "words"),
    BROKEN,
    ids=lambda part: str(part)[:20],
)
def test_a_broken_rule_is_found_with_its_reason_and_line(rule, severity, old, new, line, words):
    """
    Each finding has severity, line, reason and fix.
    """
    spec = changed(old, new)
    if rule == "nothing-gates":
        spec = changed("combine: weighted_sum", "combine: gated", spec)
    if words == "200 steps can give":
        spec = changed("combine:", "horizon: 200\ncombine:", spec)
    elif rule == "large-shaping" and severity == "error":
        spec = changed("weight: 0.5", "weight: 0.6", spec)
        words = "shaping can give 0.6"
    found = [one for one in lint(load(spec=spec, graders=MORE)) if one.rule == rule]

    assert (severity, line) == (found[0].severity, found[0].line)
    assert words in f"{found[0].reason}; {found[0].fix}"
    assert found[0].fix


def test_a_judge_alone_is_found():
    """
    A judge without a deterministic component is a finding.
    """
    found = {one.rule for one in lint(load(spec=JUDGE))}

    assert {"lone-judge", "no-exploit"} == found


def test_an_include_without_a_version_is_found():
    """
    The fix has the present version.
    """
    inner = changed("gsm8k", "inner", SPEC)
    Path("specs/inner.yaml").write_text(inner)
    spec = load(spec=changed("combine:", "include: [{spec: inner.yaml, as: inner, weight: 0.1}]\ncombine:"))

    (found,) = [one for one in lint(spec) if one.rule == "unpinned-include"]

    assert (10, 'pin it with version: "^1.2.0"') == (found.line, found.fix)


def test_an_include_whose_inputs_are_lacking_is_found():
    """
    A required input of the include is missing in the outer spec.
    """
    inner = changed("gsm8k", "inner", changed("answer: string}", "answer: string, hint: string, more: any?}"))
    Path("specs/inner.yaml").write_text(inner)
    include = 'include: [{spec: inner.yaml, as: inner, weight: 0.1, version: "^1.2"}]\ncombine:'
    spec = load(spec=changed("combine:", include))

    (found,) = [one for one in lint(spec) if one.rule == "lacking-input"]

    assert (10, "add hint to `inputs`") == (found.line, found.fix)


def test_a_range_below_the_floor_would_pay_the_cheat():
    """
    A floor above the lowest reward is an error.
    """
    spec = changed("range: [0, 1]}\n  - {name: format", "range: [-1, 1]}\n  - {name: format")

    assert [] == [one for one in lint(load(spec=spec)) if one.rule == "high-floor"]
    found = lint(load(spec=changed("combine: weighted_sum", "combine: weighted_sum\nfloor: 0", spec)))
    assert [("high-floor", 11)] == [(one.rule, one.line) for one in found if one.severity == "error"]


def test_opaque_code_needs_a_version():
    """
    A `version` replaces the digest.
    """
    Path("specs/broken.py").write_text("def anything(completion) return 1.0\n")
    for version, expected in (("", [("error", 8)]), (', version: "1"', [])):
        spec = load(spec=changed('graders:language_reward"', f'broken:anything"{version}'), graders=MORE)
        faults = [one for one in lint(spec, imports=False) if one.rule == "unread-code"]

        assert expected == [(one.severity, one.line) for one in faults]
        assert all("can't be parsed as Python" in one.reason for one in faults)


def test_gaps_of_a_module_are_one_finding():
    """
    Several components of one module that imports an unlisted package give one warning.
    """
    found = [one for one in lint(load(graders="import wrapt\n" + GRADERS)) if one.rule == "unread-code"]

    assert [("warning", 6)] == [(one.severity, one.line) for one in found]


def test_the_function_that_combines_is_read_too():
    """
    Its code follows the rules of components.
    """
    spec = changed("combine: weighted_sum", 'combine: {use: "made:anything"}')

    assert [("unread-code", 10)] == [(one.rule, one.line) for one in lint(load(spec=spec, graders=MORE))]


def test_without_imports_nothing_is_imported():
    """
    Rules that need no import still apply.
    """
    spec = load(
        spec=changed("weight: 0.3", "weight: 0.4"), graders=GRADERS + "\nraise SystemExit('imported')\n"
    )

    assert {"weights", "style-over-substance"} == {one.rule for one in lint(spec, imports=False)}


def test_every_rule_is_tested():
    """
    Each rule is in this module or among the tests of locks.
    """
    tested = {case[0] for case in BROKEN} | {
        "lone-judge",
        "unpinned-include",
        "lacking-input",
        "changed-unversioned",
    }

    assert set(RULES) == tested


def test_every_rule_is_documented():
    """
    Each id is in the table of the page on reward specs, as that of inputs which a recording lacks.
    """
    page = Path(__file__).parents[2] / "docs" / "reward-specs.md"

    assert {*RULES, "unrecorded-input"} == set(
        re.findall(r"^\| `([a-z-]+)` \| (?:error|warning)", page.read_text(), re.MULTILINE)
    )


def test_an_include_whose_floor_is_not_used_is_reported():
    """
    An include's own `on_invalid` has no effect in the outer spec.
    """
    inner = spec(component("calm", "rubric", 1.0, range=(0, 1)), on_invalid="floor")
    outer = spec(
        component("math", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "style", "version": "1.0.0"}],
    )
    found = [one.reason for one in lint(outer) if one.rule == "unusual-policy"]

    assert ["style has on_invalid: floor, which has no effect here: on_invalid is invalid"] == found


def test_skipping_with_ranges_that_differ_is_reported():
    """
    Scaled weights may lead outside of the range.
    """
    parts = [component("one", "rubric", 1.0, range=(-1, 1)), component("other", "rubric", 1.0, range=(0, 1))]
    rules = [{one.rule for one in lint(spec(*parts, on_invalid="skip", clip=clip))} for clip in (False, True)]

    assert [True, False] == ["unusual-policy" in found for found in rules]


def test_a_check_of_an_include_may_be_expected_to_fail():
    """
    Cases name it by its path.
    """
    inner = spec(component("no_leak", "check", False))
    outer = spec(
        component("math", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "safety", "version": "1.0.0"}],
        cases=[
            {
                "name": "leak",
                "kind": "violation",
                "input": {},
                "expect": {"failed_checks": ["safety.no_leak"]},
            }
        ],
    )

    assert [] == [one.reason for one in lint(outer) if one.rule == "impossible-case"]

"""Validation of documents, with messages and lines."""

from __future__ import annotations

import pytest
from rewards.specimens import SPEC, changed, small

import mttp
from mttp.errors import SpecError
from mttp.rewards.loading import document_of
from mttp.rewards.parsing import SpecSource, parse


def test_the_specimen_is_a_document():
    """
    The spec in the documentation is valid.
    """
    document = document_of(parse(SPEC))

    assert ("gsm8k", "1.2.0", "weighted_sum") == (document.name, document.version, document.combine)
    assert [0.5, 0.3, 0.2, 1.0] == [entry.weight for entry in document.components]
    assert (0.0, 1.0) == document.components[0].range


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("combine:", "combin:", 10, "unknown key 'combin'; did you mean 'combine'?"),
        ("kind: check", "kind: chek", 9, "unknown kind 'chek'; did you mean 'check'?"),
        ("kind: exploit", "kind: exploid", 17, "unknown kind 'exploid'; did you mean 'exploit'?"),
        ("combine: weighted_sum", "combine: sum", 10, "unknown combine 'sum'"),
        ("weight: 0.5", "wieght: 0.5", 6, "unknown key 'wieght'; did you mean 'weight'?"),
        ("weight: 0.5", "weight: heavy", 6, "`weight` is 'heavy': it should be a valid number"),
        ("weight: 0.5", 'weight: "0.5"', 6, "`weight` is '0.5': it should be a valid number"),
        ("weight: 0.5", "weight: .inf", 6, "finite number"),
        ("weight: 0.5", "weight: yes", 6, "`weight` is 'yes'"),
        ("weight: 0.5", "clip: yes", 6, "write true or false"),
        ("version: 1.2.0", "version: 1.20", 3, 'which YAML reads as a number; write 1.20.0 or "1.20"'),
        ("version: 1.2.0", "version: newest", 3, "three numbers, such as 1.2.0"),
        ("version: 1.2.0\n", "", 1, "the spec lacks `version`"),
        (
            "range: [0, 1]}\n  - {name: format",
            "range: [1, 0]}\n  - {name: format",
            6,
            "write the lowest value first",
        ),
        ("range: [0, 1]}\n  - {name: format", "range: [1]}\n  - {name: format", 6, "range"),
        ("answer: string", "answer: text", 4, "string, number, integer"),
        ('use: "graders:math_reward"', "use: graders.math_reward", 6, "`module:function`"),
        ("name: format", "name: math", 7, "two components are named 'math'"),
        ("name: format", "name: Math", 7, "'math' and 'Math' have the same attribute key 'math'; rename one"),
        ("than: number-soup", "than: number-soap", 20, "no case 'number-soap'; did you mean 'number-soup'?"),
        ("name: number-soup", "name: right", 16, "two cases are named 'right'"),
        ("max: 0.7", "most: 0.7", 19, "unknown key 'most'"),
        (
            "  - {better: right, than: number-soup}",
            "  - right",
            20,
            "the case at position 3 is 'right': it should be a mapping",
        ),
        (
            "range: [0, 1]}\n  - {name: format",
            "range: [0, x]}\n  - {name: format",
            6,
            "`range` at position 2 is 'x'",
        ),
        ("{completion: string, answer: string}", "[completion]", 4, "it should be a mapping"),
        (
            "mttp: reward-spec/1",
            "mttp: reward-spec/2",
            1,
            "`mttp` is 'reward-spec/2'; write mttp: reward-spec/1",
        ),
    ],
    ids=lambda part: str(part)[:24],
)
def test_what_is_wrong_is_reported_with_its_line(old, new, line, words):
    """
    Unknown words have a suggestion, and text that YAML reads as a number has advice.
    """
    with pytest.raises(SpecError) as caught:
        document_of(parse(changed(old, new)))

    assert words in str(caught.value)
    assert line == caught.value.line


def test_all_faults_are_reported_at_once():
    """
    The message has a line for each fault; the error's place is the first.
    """
    text = changed("kind: check", "kind: chek", changed("weight: 0.5", "weight: x"))

    with pytest.raises(SpecError) as caught:
        document_of(parse(text))

    assert [6, 9] == [int(line.split(":")[0].split()[-1]) for line in str(caught.value).splitlines()]


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_mapping_is_no_spec(data):
    """
    The error says what a spec is.
    """
    with pytest.raises(SpecError, match="not a reward spec"):
        document_of(SpecSource(data=data))


def test_a_document_from_python_has_no_lines():
    """
    The error has the message without a place.
    """
    with pytest.raises(SpecError, match=r"^unknown key 'rnge'; did you mean 'range'") as caught:
        mttp.RewardSpec.from_dict(small(rnge=1))

    assert (None, None) == (caught.value.path, caught.value.line)

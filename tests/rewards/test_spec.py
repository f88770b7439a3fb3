"""Reward specs from files and from functions."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from rewards.specimens import SPEC, load, small, write

import mttp
from mttp.errors import SpecError


@mttp.rewards.verifier(range=(0, 1), weight=0.75)
def right(completion, answer):
    return completion == answer


@mttp.rewards.rubric(name="short", range=(0, 1), weight=0.25)
def is_short(completion):
    return len(completion) < 9


def plain(completion):
    return 1.0


def made(**fields):
    """Return a spec of decorated functions."""
    stated = {
        "name": "made",
        "version": "1.0.0",
        "inputs": {"completion": "string", "answer": "string"},
        "components": [right, is_short],
        "combine": "weighted_sum",
    }
    return mttp.RewardSpec(**stated | fields)


def test_the_contract_runs_as_it_stands():
    """
    The example of a spec gives the documented result.
    """
    write()
    spec = mttp.RewardSpec.load("specs/gsm8k.yaml")
    result = spec.score(completion="<think>5+3</think><answer>8</answer>", answer="8")

    assert (1.0, "ok", "pass", ()) == (result.value, result.status, result.verdict, result.failed_checks)
    assert (1.0, 0.5) == (result.components["math"].value, result.components["math"].contribution)
    assert ("gsm8k", "1.2.0", "full") == (spec.name, spec.version, spec.code_coverage)
    with mttp.configure(transport="memory://") as session, mttp.episode() as ep:
        ep.reward(result)

    assert spec.sha256 == mttp.read(session).episodes[0].reward.spec.sha256


def test_a_spec_is_made_of_decorated_functions():
    """
    Decorators have kind, name, weight and range.
    """
    spec = made()
    result = spec.score(completion="8", answer="8")

    assert [("right", "verifier", 0.75), ("short", "rubric", 0.25)] == [
        (entry.name, entry.kind, entry.weight) for entry in spec.document.components
    ]
    assert (1.0, "partial", (0.0, 1.0)) == (result.value, spec.code_coverage, spec.range)


def test_a_spec_is_made_of_plain_functions_and_lambdas():
    """
    A dict has the function under `use`.
    """
    components = [
        right,
        {"name": "a", "kind": "rubric", "use": plain},
        {"name": "b", "kind": "rubric", "use": lambda completion: 0.5},
    ]
    spec = made(components=components, combine=lambda values, weights: min(values.values()))
    result = spec.score(completion="8", answer="8")

    assert (0.5, "partial") == (result.value, spec.code_coverage)
    assert [f"{__name__}:right", f"{__name__}:plain", None] == [
        entry.use for entry in spec.document.components
    ]


def test_a_component_may_be_called_combine():
    """
    It does not collide with the combining function.
    """
    components = [{"name": "combine", "kind": "rubric", "use": plain}]
    spec = made(components=components, combine=lambda values, weights: values["combine"] / 4)

    assert (0.25, 2) == (spec.score(completion="8", answer="8").value, len(spec.codes))


def test_a_spec_is_made_of_specs():
    """
    An included spec has its own name unless `as` is given.
    """
    spec = made(include=[{"spec": made(name="inner"), "weight": 0.5}])

    assert 1.5 == spec.score(completion="8", answer="8").value
    assert ["right", "short", "inner"] == [part.name for part in spec.parts]


def test_a_spec_that_is_given_is_of_the_version_that_is_asked_for():
    """
    The include's constraint applies to objects as well.
    """
    with pytest.raises(SpecError, match=r"the version of inner is 1\.0\.0, and the include requires \^2\.0"):
        made(include=[{"spec": made(name="inner"), "version": "^2.0"}])


def test_what_is_made_in_python_reads_back_from_its_file():
    """
    With importable functions, document and digests are equal.
    """
    spec = made()
    others = [mttp.RewardSpec.from_text(text) for text in (spec.to_yaml(), spec.to_json())]

    assert [spec.document] * 2 == [other.document for other in others]
    assert [spec.sha256] * 2 == [other.sha256 for other in others]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"components": [3]}, "components has 3; expected a decorated function"),
        ({"components": [plain]}, "lacks `kind`"),
        ({"components": [right, right]}, "two components are named 'right'"),
        ({"version": "1"}, "three numbers"),
        ({"weights": 1}, "unknown key 'weights'"),
    ],
)
def test_what_no_file_may_contain_no_code_may_set(fields, words):
    """
    Invalid keys raise without lines.
    """
    with pytest.raises(SpecError, match=words):
        made(**fields)


def test_a_component_without_a_function_can_be_read_but_not_scored():
    """
    A recorded document has no code for a lambda.
    """
    component = {"name": "right", "kind": "verifier"}
    spec = mttp.RewardSpec.from_dict(small(components=[component]))

    assert "opaque" == spec.code_coverage
    with pytest.raises(SpecError, match="right has no `use`"):
        spec.score(completion="")


def test_partials_are_named_by_what_they_fix_in_the_code():
    """
    Two partials of one function have different digests.
    """
    specs = [
        made(components=[{"name": "a", "kind": "rubric", "use": functools.partial(plain, fixed)}])
        for fixed in ("x", "y")
    ]

    assert [None, None] == [spec.document.components[0].use for spec in specs]
    assert specs[0].code_sha256 != specs[1].code_sha256


def test_json_files_are_specs_too():
    """
    Any JSON formatting is accepted.
    """
    write()
    spec = mttp.RewardSpec.from_text(SPEC, folder="specs")
    Path("specs/gsm8k.json").write_text(json.dumps(spec.to_dict(), ensure_ascii=True, indent="\t"))
    found = mttp.RewardSpec.load("specs/gsm8k.json")

    assert (spec.sha256, spec.code_sha256) == (found.sha256, found.code_sha256)


def test_a_spec_that_is_missing_says_so():
    """
    The error has its path.
    """
    with pytest.raises(SpecError, match=r"^nowhere\.yaml: can't read the file: No such file"):
        mttp.RewardSpec.load("nowhere.yaml")


def test_a_spec_says_what_it_is():
    """
    The repr is one line.
    """
    expected = "RewardSpec('gsm8k', '1.2.0', components=['math', 'format', 'language', 'no-tool-abuse'])"

    assert expected == repr(load())


def test_cases_may_hold_what_canonical_json_can_not():
    """
    The recorded document represents them in plain JSON.
    """
    cases = [{"name": "odd", "kind": "unusual", "input": {"completion": "", "n": 2**60, "x": float("nan")}}]
    write()
    spec = mttp.RewardSpec.from_dict(small(cases=cases), folder="specs")

    assert {"completion": "", "n": 2**60, "x": None} == json.loads(spec.plan.document)["cases"][0]["input"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (object(), "of the type object"),
        (float("nan"), "holds nan, which JSON can't represent"),
        (2**60, "an integer beyond"),
        ({"a"}, "holds {'a'} of the type set"),
        ([{"b": {"a"}}], "holds {'a'} of the type set"),
        (lambda completion: 1.0, "of the type function"),
        ({1: 2}, "holds a dict with the key 1; write keys as text"),
        ("\ud800", "which UTF-8 can't encode"),
        (Path("a"), "of the type PosixPath"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_parameters_are_plain_data(given, words):
    """
    Other values raise with component and parameter.
    """
    component = {"name": "a", "kind": "rubric", "use": plain, "params": {"given": given}}

    with pytest.raises(SpecError, match="the parameter 'given' of the component 'a' holds") as caught:
        made(components=[component])
    assert words in str(caught.value)


def test_inputs_of_cases_are_plain_data():
    """
    A set would read back as a list.
    """
    case = {"name": "right", "kind": "valid", "input": {"words": {"a"}}}

    with pytest.raises(SpecError, match="the input 'words' of the case 'right' holds"):
        made(cases=[case])


class Judge:
    """A grader with a state."""

    def __init__(self, word):
        self.word = word

    def __call__(self, completion):
        return float(self.word in completion)


def test_an_object_that_can_be_called_is_a_component():
    """
    Its state is in the code's digest.
    """
    part = {"name": "it", "kind": "rubric", "range": [0, 1]}
    one, other = (made(components=[{**part, "use": Judge(word)}], combine="minimum") for word in "ab")
    named = made(components=[{"kind": "rubric", "use": Judge("a")}], combine="minimum")

    assert (1.0, 0.0) == tuple(spec.score(completion="a", answer="").value for spec in (one, other))
    assert one.code_sha256 != other.code_sha256
    assert ["Judge"] == [entry.name for entry in named.document.components]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda completion: 1.0, "the component 'it' uses <lambda>"),
        (Judge("a"), "the component 'it' uses Judge"),
        (functools.partial(plain), "the component 'it' uses partial"),
    ],
    ids=["lambda", "object", "partial"],
)
def test_a_function_that_no_file_can_name_is_not_written(use, words):
    """
    A component without `use` could not be loaded again.
    """
    spec = made(components=[{"name": "it", "kind": "rubric", "use": use}])

    for write_out in (spec.to_yaml, spec.to_json):
        with pytest.raises(SpecError, match="define a function in a module") as caught:
            write_out()
        assert words in str(caught.value)


def test_a_combination_that_no_file_can_name_is_not_written():
    """
    The rule applies to `combine` as well.
    """
    with pytest.raises(SpecError, match=r"`combine` uses .*<lambda>, which a file can't name"):
        made(combine=lambda values, weights: 0.0).to_yaml()

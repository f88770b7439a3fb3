"""What `use` names: found beside the spec or installed, and called only if it may be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rewards.specimens import GRADERS, SPEC, changed, load, small, write

import mttp
from mttp.errors import SpecError

CHEAT = """
from os import system
import functools


def right(completion):
    return 1.0


ping = functools.partial(system)
once = functools.lru_cache(right)


class Grader:
    def right(self, completion):
        return 1.0


GRADER = Grader()
"""


def called(use: str, **fields: object) -> object:
    """The function that a spec beside `graders.py` gets."""
    component = {"name": "right", "kind": "verifier", "use": use, "range": [0, 1], **fields}
    spec = mttp.RewardSpec.from_dict(small(components=[component]), folder="specs")
    return spec.plan.components[0].function


@pytest.fixture
def cheat() -> None:
    """Graders among which some are not their own."""
    write(graders=CHEAT)


def test_two_specs_have_graders_of_their_own():
    """
    Modules of one name beside two specs never mix, nor do their helpers, nor what is loaded later.
    """
    one = load("one")
    other = load("other", helpers="def scaled(value): return 7.0\nSCALE = 1")

    values = [spec.plan.components[0].function("<answer>8</answer>", "8") for spec in (one, other)]

    assert [1.0, 7.0] == values


def test_modules_beside_a_spec_leave_no_trace():
    """
    Neither path nor names of the interpreter are changed, and no compiled copy lies there afterwards.
    """
    path, names = list(sys.path), {"graders", "helpers"} & sys.modules.keys()

    assert load().plan.components

    assert (path, names) == (sys.path, {"graders", "helpers"} & sys.modules.keys())
    assert ["graders.py", "gsm8k.yaml", "helpers.py"] == sorted(item.name for item in Path("specs").iterdir())


def test_packages_relative_and_late_imports_work_beside_a_spec():
    """
    A package beside the spec, what it imports of itself, and an import inside a function.
    """
    write()
    Path("specs/pkg/deep").mkdir(parents=True)
    Path("specs/pkg/__init__.py").write_text("from . import other\n")
    Path("specs/pkg/other.py").write_text("N = 2\n")
    Path("specs/pkg/deep/__init__.py").write_text("")
    Path("specs/pkg/deep/leaf.py").write_text(
        "import pkg.other\nfrom ..other import N\n"
        "def right(completion):\n    import helpers\n    return N + pkg.other.N + helpers.SCALE\n"
    )

    assert 5.0 == called("pkg.deep.leaf:right")("")


def test_a_module_that_changed_is_loaded_anew():
    """
    The next spec that is loaded runs what is there by then; the earlier one goes on as it was.
    """
    before = load()
    assert before.plan
    after = load(helpers="SCALE = 3.0\ndef scaled(value): return value * SCALE\n")

    values = [spec.plan.components[0].function("<answer>8</answer>", "8") for spec in (before, after)]

    assert [1.0, 3.0] == values
    assert before.code_sha256 != after.code_sha256


def test_code_that_changes_between_its_digest_and_its_import_is_refused():
    """
    A reward would name a digest that is not that of the code which ran.
    """
    spec = load()
    assert spec.code_sha256
    write(helpers="SCALE = 3.0\ndef scaled(value): return value * SCALE\n")

    with pytest.raises(SpecError, match="was changed after it was loaded; load it again"):
        assert spec.plan


def test_installed_modules_may_be_declared():
    """
    A function of a distribution that the spec declares is called.
    """
    component = {"name": "right", "kind": "rubric", "use": "pydantic.color:is_str", "range": [0, 1]}
    document = small(components=[component | {"use": "wrapt:decorator"}])
    with pytest.raises(SpecError, match="is not called"):
        assert mttp.RewardSpec.from_dict(document).plan

    assert mttp.RewardSpec.from_dict(document | {"distributions": ["wrapt"]}).plan


@pytest.mark.parametrize("use", ["os:system", "graders:system", "graders:ping", "graders:functools.reduce"])
@pytest.mark.usefixtures("cheat")
def test_what_lies_elsewhere_is_not_called(use):
    """
    Not directly, not through a module of the spec's that imported it, not wrapped in a partial.
    """
    with pytest.raises(SpecError, match=r"is not called: .* --trust"):
        called(use)


@pytest.mark.usefixtures("cheat")
def test_an_installed_module_is_not_even_imported():
    """
    Unless it was imported before, or may hold decorated functions: importing runs code.
    """
    with pytest.raises(SpecError, match="this is not called"):
        called("this:s")

    assert "this" not in sys.modules


@pytest.mark.parametrize("use", ["graders:right", "graders:once", "graders:GRADER.right"])
@pytest.mark.usefixtures("cheat")
def test_what_lies_in_the_folder_is_called(use):
    """
    Also as a method, or wrapped by a library's decorator.
    """
    assert callable(called(use))


@pytest.mark.usefixtures("cheat")
def test_trust_calls_anything():
    """
    Whoever loads a spec may say that its code is to be trusted.
    """
    component = {"name": "right", "kind": "verifier", "use": "math:sqrt", "params": {}}
    spec = mttp.RewardSpec.from_dict(small(components=[component]), trust=True)

    assert 3.0 == spec.plan.components[0].function(9)


def test_a_link_out_of_the_folder_is_elsewhere(tmp_path):
    """
    A file that only looks as if it lay beside the spec is not found there.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "linked.py").write_text("def right(completion): return 1.0\n")
    write()
    Path("specs/linked.py").symlink_to(outside / "linked.py")

    with pytest.raises(SpecError, match="there is no module linked"):
        called("linked:right")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "graders:math_reward",
            "grader:math_reward",
            "nor installed; did you mean 'graders'?",
        ),
        ("graders:math_reward", "graders:math_rewrd", "did you mean 'math_reward'?"),
        ("graders:math_reward", "graders:_ANSWER", "is a Pattern, not a function"),
        ("graders:math_reward", "pathlib:Path", "the class Path, not a function"),
        (
            "{completion: string, answer: string}",
            "{completion: string, anser: string}",
            "did you mean 'anser'?",
        ),
        ("weight: 0.5", "params: {scale: 2}", "does not take the parameter 'scale'"),
        ("weight: 0.2", "arity: output-truth", "can't be called as (output, truth)"),
    ],
    ids=lambda part: part[:30],
)
def test_a_target_that_does_not_fit_is_said_with_its_line(old, new, words):
    """
    File and line of the `use`, the nearest name that there is.
    """
    with pytest.raises(SpecError) as caught:
        assert load(spec=changed(old, new)).plan

    assert words in str(caught.value)
    assert ("specs/gsm8k.yaml", True) == (caught.value.path, caught.value.line in range(6, 10))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nowhere_to_be_found", "importing graders needs nowhere_to_be_found, which is not installed"),
        ("def f(:", "importing graders raised SyntaxError"),
        ("raise SystemExit(3)", "importing graders raised SystemExit: 3"),
        ("1 / 0", r"importing graders raised ZeroDivisionError: division by zero \(.*graders\.py:1\)"),
    ],
)
def test_code_that_can_not_be_imported_is_said_with_its_line(code, words):
    """
    With what was raised, and where.
    """
    with pytest.raises(SpecError, match=words) as caught:
        assert load(graders=code).plan

    assert ("specs/gsm8k.yaml", 6) == (caught.value.path, caught.value.line)


def test_a_batch_function_may_name_plurals():
    """
    `(prompts, completions, **kwargs)`, where the spec's inputs are one prompt and one completion.
    """
    graders = GRADERS + "\ndef many(completions, answer, **kwargs):\n    return [1.0 for _ in completions]\n"
    spec = changed('graders:math_reward"', 'graders:many", arity: batch', SPEC)

    assert load(spec=spec, graders=graders).plan


def test_importing_is_put_off():
    """
    Loading, digests and showing run nothing of the user's.
    """
    spec = load(graders="raise SystemExit('imported')")

    assert (64, 64) == (len(spec.sha256), len(spec.code_sha256))


def test_our_own_package_is_never_taken_from_the_folder():
    """
    A spec may lie beside a checkout of mttp.
    """
    write(graders="import mttp\n" + GRADERS)
    Path("specs/mttp").mkdir()
    Path("specs/mttp/__init__.py").write_text("raise SystemExit('another mttp')")

    assert mttp.RewardSpec.load("specs/gsm8k.yaml").plan


def test_a_spec_scores_wherever_the_process_goes(tmp_path, monkeypatch):
    """
    Its folder is the one that it was loaded from, though that was said relative to another directory.
    """
    write()
    spec = mttp.RewardSpec.load("specs/gsm8k.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")

    assert "ok" == spec.score(completion="", answer="").status
    assert (tmp_path / "specs/gsm8k.yaml", True) == (spec.path, Path(spec.plan.location).is_absolute())

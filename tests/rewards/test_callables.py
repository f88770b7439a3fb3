"""Functions under `use`: lookup beside the spec or among installed modules, and trust."""

from __future__ import annotations

import py_compile
import sys
from pathlib import Path

import pytest
from rewards.specimens import GRADERS, SPEC, changed, load, small, write

import mttp
from mttp.errors import SpecError

CHEAT = """
import functools
import json.tool
import subprocess
from os import system
from xmlrpc.client import ServerProxy

import mttp


def right(completion):
    return 1.0


ping = functools.partial(system)
once = functools.lru_cache(right)


class Grader:
    shell = staticmethod(system)
    library = subprocess

    @property
    def broken(self):
        raise SystemExit(3)

    def right(self, completion):
        return 1.0


class Shell(subprocess.Popen):
    pass


GRADER = Grader()
PROXY = ServerProxy("http://localhost:1")
TABLE = {"shell": system}
MADE = mttp.rewards.verifier(functools.partial(system))
"""


def called(use: str, **fields: object) -> object:
    """Return the function that a spec beside `graders.py` resolves."""
    component = {"name": "right", "kind": "verifier", "use": use, "range": [0, 1], **fields}
    spec = mttp.RewardSpec.from_dict(small(components=[component]), folder="specs")
    return spec.plan.components[0].function


@pytest.fixture
def cheat() -> None:
    """Graders that expose functions of other modules."""
    write(graders=CHEAT)


def test_two_specs_have_graders_of_their_own():
    """
    Modules of one name beside two specs are separate, and so are their helpers and late imports.
    """
    one = load("one")
    other = load("other", helpers="def scaled(value): return 7.0\nSCALE = 1")

    values = [spec.plan.components[0].function("<answer>8</answer>", "8") for spec in (one, other)]

    assert [1.0, 7.0] == values


def test_modules_beside_a_spec_leave_no_trace():
    """
    `sys.path` and `sys.modules` names are unchanged, and no `.pyc` file is written.
    """
    path, names = list(sys.path), {"graders", "helpers"} & sys.modules.keys()

    assert load().plan.components

    assert (path, names) == (sys.path, {"graders", "helpers"} & sys.modules.keys())
    assert ["graders.py", "gsm8k.yaml", "helpers.py"] == sorted(item.name for item in Path("specs").iterdir())


def test_packages_relative_and_late_imports_work_beside_a_spec():
    """
    Packages, relative imports and imports inside functions work beside a spec.
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
    The next loaded spec runs the changed module; the earlier spec keeps its own.
    """
    before = load()
    assert before.plan
    after = load(helpers="SCALE = 3.0\ndef scaled(value): return value * SCALE\n")

    values = [spec.plan.components[0].function("<answer>8</answer>", "8") for spec in (before, after)]

    assert [1.0, 3.0] == values
    assert before.code_sha256 != after.code_sha256


def test_code_that_changes_between_its_digest_and_its_import_is_refused():
    """
    Otherwise a reward would have a digest of other code than ran.
    """
    spec = load()
    assert spec.code_sha256
    write(helpers="SCALE = 3.0\ndef scaled(value): return value * SCALE\n")

    with pytest.raises(SpecError, match="code changed after the spec was loaded; load the spec again"):
        assert spec.plan


def test_a_distribution_that_a_spec_states_is_not_trusted():
    """
    `distributions` affects the digest and gives no trust.
    """
    component = {"name": "right", "kind": "rubric", "range": [0, 1]}
    shell = component | {"use": "numpy.testing._private.utils:runstring"}
    document = small(components=[shell], distributions=["numpy"])

    with pytest.raises(SpecError, match=r"numpy\.testing\._private\.utils is not trusted: "):
        assert mttp.RewardSpec.from_dict(document).plan


@pytest.mark.parametrize(
    "trust", ["wrapt", ["os", "wrapt"], {"wrapt.decorators"}, True], ids=["text", "list", "set", "all"]
)
def test_a_module_that_the_user_trusts_is_called(trust):
    """
    `trust` names the module or one of its parents.
    """
    component = {"name": "right", "kind": "rubric", "use": "wrapt.decorators:decorator", "range": [0, 1]}
    spec = mttp.RewardSpec.from_dict(small(components=[component]), trust=trust)

    assert callable(spec.plan.components[0].function)


def test_a_module_that_a_variable_names_is_called(monkeypatch):
    """
    MTTP_TRUST has names separated by commas, added to those of the argument.
    """
    monkeypatch.setenv("MTTP_TRUST", " wrapt, statistics ")
    component = {"name": "right", "kind": "rubric", "use": "textwrap:dedent", "range": [0, 1]}
    spec = mttp.RewardSpec.from_dict(
        small(components=[component, component | {"name": "mean", "use": "statistics:mean"}]),
        trust=["textwrap"],
    )

    assert ["right", "mean"] == [one.name for one in spec.plan.components]


@pytest.mark.parametrize("name", ["statistic", "statistics2", "stat"])
def test_a_name_that_only_begins_alike_is_not_trusted(name):
    """
    Names are compared by their dotted parts.
    """
    component = {"name": "right", "kind": "rubric", "use": "statistics:mean", "range": [0, 1]}

    with pytest.raises(SpecError, match="statistics is not trusted"):
        assert mttp.RewardSpec.from_dict(small(components=[component]), trust=[name]).plan


@pytest.mark.parametrize("name", ["acme-rewards", "a..b", "", "*", "graders.py "])
def test_what_can_not_be_the_name_of_a_module_is_an_error(name):
    """
    A distribution's name or a pattern would silently trust nothing.
    """
    with pytest.raises(SpecError, match="is not a module name"):
        mttp.RewardSpec.from_dict(small(), trust=[name])


@pytest.mark.parametrize(
    ("use", "owner"),
    [
        ("graders:system", "posix"),
        ("graders:ping", "posix"),
        ("graders:functools.reduce", "functools"),
        ("graders:subprocess.getoutput", "subprocess"),
        ("graders:json.tool.main", "json"),
        ("graders:PROXY.system.shutdown", "xmlrpc.client"),
        ("graders:PROXY", "xmlrpc.client"),
        ("graders:Grader.shell", "posix"),
        ("graders:Grader.library.getoutput", "subprocess"),
        ("graders:Shell.communicate", "subprocess"),
        ("graders:__loader__.set_data", "mttp.rewards.folder"),
    ],
)
@pytest.mark.usefixtures("cheat")
def test_what_a_module_beside_the_spec_merely_has_is_not_called(use, owner):
    """
    Imported, wrapped and inherited functions of other modules are not trusted.
    """
    with pytest.raises(SpecError, match=rf"{use} is not trusted.*: it belongs to the module {owner}"):
        called(use)


@pytest.mark.parametrize(
    "use",
    [
        "graders:TABLE.get",
        "graders:right.__globals__.get",
        "graders:__builtins__.get",
        "graders:right.__call__",
        "graders:right.__code__.replace",
        "graders:Grader.mro",
        "graders:GRADER.__class__.__base__.__subclasses__",
    ],
)
@pytest.mark.usefixtures("cheat")
def test_what_python_itself_gives_every_object_is_not_called(use):
    """
    No module name identifies such functions, so the error advises no trust.
    """
    with pytest.raises(
        SpecError, match=r"the module that defines it is unknown\. Call it in a function beside the spec$"
    ):
        called(use)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#" * (4 << 20) + "\ndef right(completion): return 1.0\n", "it has more than 4,194,304 bytes"),
        ("def right(completion): return " + "-" * 100_000 + "1\n", "MemoryError|RecursionError|SyntaxError"),
    ],
    ids=["large", "nested"],
)
def test_a_module_that_can_not_be_read_is_reported(text, words):
    """
    Neither its digest nor its import exhausts memory.
    """
    write(graders=text)

    with pytest.raises(SpecError, match=f"importing graders raised .*({words})"):
        called("graders:right")


@pytest.mark.usefixtures("cheat")
def test_what_a_lookup_raises_is_reported():
    """
    The error has the exception of a property.
    """
    with pytest.raises(
        SpecError, match=r"reading the attribute broken of graders:GRADER raised SystemExit: 3 \("
    ):
        called("graders:GRADER.broken")


@pytest.mark.usefixtures("cheat")
def test_a_function_that_combines_needs_the_same_trust():
    """
    `combine` follows the rules of a component's `use`.
    """
    document = small(components=[], combine={"use": "os:system"})
    spec = mttp.RewardSpec.from_dict(document, folder="specs")

    with pytest.raises(SpecError, match="the module os is not trusted"):
        assert spec.plan


@pytest.mark.usefixtures("cheat")
def test_a_foreign_module_is_not_even_looked_into():
    """
    Reading an attribute of a lazy module may import others.
    """
    Path("specs/lazy.py").write_text(
        "import types\nclass Lazy(types.ModuleType):\n    def __getattr__(self, name):\n"
        "        raise SystemExit(name)\nmodule = Lazy('elsewhere')\n"
    )

    with pytest.raises(SpecError, match="because lazy:module is not"):
        called("lazy:module.attribute")


@pytest.mark.usefixtures("cheat")
def test_a_decorated_function_of_another_module_is_called_where_one_beside_the_spec_has_it():
    """
    A decorator in trusted code declares a library's function as a component.
    """
    assert callable(called("graders:MADE"))


@pytest.mark.parametrize("module", ["this", "mttp.__main__"])
@pytest.mark.usefixtures("cheat")
def test_an_installed_module_is_not_even_imported(module, monkeypatch):
    """
    Importing a module would run its code.
    """
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SpecError, match=f"{module} is not trusted"):
        called(f"{module}:s")

    assert module not in sys.modules


def test_a_module_that_was_imported_already_is_not_called():
    """
    An earlier import by the process gives no trust.
    """
    assert "os" in sys.modules
    with pytest.raises(SpecError) as caught:
        load(spec=changed("graders:math_reward", "os:system")).plan  # noqa: B018

    assert (
        "specs/gsm8k.yaml:6:39: the module os is not trusted: it is not in the spec's directory, and a spec "
        "can't trust modules itself. If you trust it, pass --trust-module os or trust=['os'], or set "
        "MTTP_TRUST=os"
    ) == str(caught.value)


@pytest.mark.parametrize("use", ["graders:right", "graders:once", "graders:GRADER.right"])
@pytest.mark.usefixtures("cheat")
def test_what_lies_in_the_folder_is_called(use):
    """
    Methods and functions with a library's decorator are called as well.
    """
    assert callable(called(use))


@pytest.mark.usefixtures("cheat")
def test_trust_calls_anything():
    """
    `trust=True` allows all code.
    """
    component = {"name": "right", "kind": "verifier", "use": "math:sqrt", "params": {}}
    spec = mttp.RewardSpec.from_dict(small(components=[component]), trust=True)

    assert 3.0 == spec.plan.components[0].function(9)


def test_a_link_out_of_the_folder_is_elsewhere(tmp_path):
    """
    A link to a file outside of the folder is not found.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "linked.py").write_text("def right(completion): return 1.0\n")
    write()
    Path("specs/linked.py").symlink_to(outside / "linked.py")

    with pytest.raises(SpecError, match="no module linked is"):
        called("linked:right")


@pytest.mark.parametrize("file", ["code.py", "code.pyc"])
def test_a_link_in_a_package_that_leads_out_of_the_folder_is_elsewhere(tmp_path, file):
    """
    To source, and to compiled code.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "code.py").write_text("def right(completion): return 1.0\n")
    py_compile.compile(str(outside / "code.py"), cfile=str(outside / "code.pyc"))
    write()
    Path("specs/pkg").mkdir()
    Path("specs/pkg/__init__.py").write_text("")
    Path("specs/pkg", file).symlink_to(outside / file)

    with pytest.raises(SpecError, match=r"pkg\.code, which is not installed"):
        called("pkg.code:right")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "graders:math_reward",
            "grader:math_reward",
            "or installed; did you mean 'graders'?",
        ),
        ("graders:math_reward", "graders:math_rewrd", "did you mean 'math_reward'?"),
        ("graders:math_reward", "graders:_ANSWER", "is a Pattern; name a function"),
        ("graders:math_reward", "graders:re.Pattern", "because graders:re is not"),
        (
            "{completion: string, answer: string}",
            "{completion: string, anser: string}",
            "did you mean 'anser'?",
        ),
        ("weight: 0.5", "params: {scale: 2}", "does not take the parameter 'scale'"),
        ("weight: 0.2", "arity: output-truth", "needs two positional arguments, (output, truth)"),
    ],
    ids=lambda part: part[:30],
)
def test_a_target_that_does_not_fit_is_reported_with_its_line(old, new, words):
    """
    The error has file, line and the nearest known name.
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
def test_code_that_can_not_be_imported_is_reported_with_its_line(code, words):
    """
    The error has the exception and where it was raised.
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
    Loading, digests and showing a spec run none of its code.
    """
    spec = load(graders="raise SystemExit('imported')")

    assert (64, len("files:1:") + 64) == (len(spec.sha256), len(spec.code_sha256))


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
    The folder of a relative path stays valid after a change of directory.
    """
    write()
    spec = mttp.RewardSpec.load("specs/gsm8k.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")

    assert "ok" == spec.score(completion="", answer="").status
    assert (tmp_path / "specs/gsm8k.yaml", True) == (spec.path, Path(spec.plan.location).is_absolute())

"""The digest of scoring code and its coverage."""

from __future__ import annotations

import ast
import functools
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewards.specimens import GRADERS, HELPERS, changed, load, small, write

import mttp
from mttp.rewards.lint import lint
from mttp.rewards.spec import RewardSpec

USE = "\n\ndef right(completion):\n    return "
"""The start of the grader that `spec` uses."""


def spec(use: str = "graders:right", *, document: dict[str, Any] | None = None, **modules: str) -> RewardSpec:
    """Return a spec with a grader in modules whose names are paths, with `__` for a slash and `init`."""
    for name, source in modules.items():
        path = Path("specs", f"{name.replace('__', '/').replace('/init', '/__init__')}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    part = {"name": "it", "kind": "verifier", "use": use, "range": [0, 1]}
    return RewardSpec.from_dict(small(components=[part], **(document or {})), folder="specs")


def given(function: Callable[..., Any]) -> RewardSpec:
    """Return a spec of a function."""
    part = {"name": "it", "kind": "verifier", "use": function, "range": [0, 1]}
    return RewardSpec(name="given", version="1.0.0", components=[part])


def parts(spec: RewardSpec) -> dict[str, str]:
    """Return the digests of the first component's files by name."""
    return {name: text for name, text in next(iter(spec.codes.values())).parts if text}


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("return 1.0 if", "return 2.0 if", True),
        ("SCALE, scaled", "SCALE, SCALE as scaled", True),
        ("def format_reward", "# a comment\ndef format_reward", True),
        ("(.*?)", "(.*)", True),
        ("\n", "\r\n", False),
        ("\n", "\r", False),
    ],
)
def test_a_change_of_the_file_of_a_grader_changes_the_digest(old, new, changes):
    """
    Comments count; line endings do not.
    """
    before = load().code_sha256
    Path("specs/graders.py").write_bytes(changed(old, new, GRADERS).encode())

    assert changes == (before != RewardSpec.load("specs/gsm8k.yaml").code_sha256)


@pytest.mark.parametrize(("old", "new"), [("SCALE = 1.0", "SCALE = 2.0"), ("UNUSED = 1", "UNUSED = 2")])
def test_a_change_of_a_helper_changes_the_digest(old, new):
    """
    The digest covers the modules that the grader imports, whole.
    """
    assert load().code_sha256 != load(helpers=changed(old, new, HELPERS)).code_sha256


@pytest.mark.parametrize(
    ("graders", "files"),
    [
        ("import helpers", ["helpers"]),
        ("import pkg.deep.leaf", ["pkg/__init__", "pkg/base", "pkg/deep/__init__", "pkg/deep/leaf", "top"]),
        ("from pkg import base", ["pkg/__init__", "pkg/base"]),
        ("from .helpers import one", ["helpers"]),
        ("from pkg.more import *", ["pkg/__init__", "pkg/base", "pkg/more/__init__", "pkg/more/extra"]),
        ("from plain import leaf", ["plain/leaf"]),
        ("try:\n    import helpers\nexcept ImportError:\n    pass", ["helpers"]),
        ("def late():\n    import helpers", ["helpers"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import helpers", ["helpers"]),
        ("if __name__ == '__main__':\n    import helpers", ["helpers"]),
        ("import cycle", ["cycle"]),
        ("import json, mttp", []),
    ],
)
def test_imported_files_of_the_folder_are_covered(graders, files):
    """
    Packages, relative and late imports are followed; files that are not imported do not count.
    """
    found = spec(
        graders=graders + USE + "1",
        helpers="",
        top="import helpers_of_none",
        cycle="import graders",
        unrelated="",
        pkg__init="from . import base",
        pkg__base="",
        pkg__deep__init="",
        pkg__deep__leaf="from ..base import x\nimport top",
        pkg__more__init="",
        pkg__more__extra="",
        plain__leaf="",
    )

    assert sorted(["graders.py", *(f"{name}.py" for name in files)]) == sorted(parts(found))
    before = found.code_sha256
    assert before == spec(unrelated="X = 1").code_sha256
    for name in files:
        source = Path("specs", f"{name}.py").read_text()
        assert before != spec(**{name.replace("/__init__", "/init").replace("/", "__"): "X = 1"}).code_sha256
        Path("specs", f"{name}.py").write_text(source)


def test_another_package_is_not_covered(tmp_path, monkeypatch):
    """
    A package of another folder counts with its distribution and version, if that is listed.
    """
    monkeypatch.syspath_prepend(tmp_path / "library")
    Path("library/acme").mkdir(parents=True)
    Path("library/acme/__init__.py").write_text("X = 1")
    found = spec(graders="import acme" + USE + "acme.X")
    Path("library/acme/__init__.py").write_text("X = 2")

    assert found.code_sha256 == spec().code_sha256
    assert ("it: it uses acme, which is not listed under `distributions`",) == found.code_gaps


def test_files_of_an_installed_grader_are_covered(tmp_path, monkeypatch):
    """
    They are those of its package, named from the directory of the package.
    """
    place = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(place)
    (place / "acme").mkdir(parents=True)
    (place / "acme/__init__.py").write_text("")
    (place / "acme/graders.py").write_text("from acme.scale import X\nimport other\ndef right(c): return X")
    (place / "acme/scale.py").write_text("X = 1")
    (place / "other.py").write_text("")
    found = spec("acme.graders:right", graders="")

    assert ["acme/__init__.py", "acme/graders.py", "acme/scale.py"] == sorted(parts(found))
    assert ("it: it uses other, which is not listed under `distributions`",) == found.code_gaps


def test_graders_of_mttp_have_its_version():
    """
    They change with the version of mttp, not with each of its files.
    """
    found = spec("mttp.integrations.ruler:ruler", graders="")

    assert ("partial", ["mttp"]) == (found.code_coverage, list(parts(found)))
    assert "the digest has the version" in found.code_gaps[0]


@pytest.mark.parametrize(
    ("source", "coverage", "gap"),
    [
        ("right = lambda completion: 1.0", "full", ""),
        ("def make(n):\n    def inner(c): return n\n    return inner\nright = make(3)", "full", ""),
        ("import re, os.path" + USE + "re.compile(completion)", "full", ""),
        ("from helpers import *", "full", ""),
        ("from helpers import right", "full", ""),
        ("GRADERS = {}\ndef register(f): GRADERS[f.__name__] = f" + USE + "GRADERS", "full", ""),
        (f"def right(completion): return 1{' + 1' * 700}", "full", ""),
        (f"X = {'(' * 300}1{')' * 300}" + USE + "X", "opaque", "can't be parsed as Python"),
        ("from math import sqrt as right", "full", ""),
        ("from wrapt import x as right", "partial", "wrapt, which is not listed under `distributions`"),
        ("exec('def right(completion): return 1.0')", "partial", "graders uses exec"),
        ("def right(completion) return 1", "opaque", "can't be parsed as Python"),
        ("import broken" + USE + "1", "partial", "broken can't be parsed as Python"),
        ("from pkg import fast" + USE + "1", "partial", "pkg.fast has no Python source"),
        ("import pkg.fast" + USE + "1", "partial", "pkg.fast has no Python source"),
        ("import wrapt" + USE + "wrapt.x", "partial", "wrapt, which is not listed under `distributions`"),
        ("def right(completion): return eval(completion)", "partial", "graders uses eval"),
        ("from importlib import import_module" + USE + "1", "partial", "graders uses import_module"),
        ("import importlib.metadata as m" + USE + "m.entry_points()", "partial", "graders uses entry_points"),
        ("import sys" + USE + "sys.modules[completion].x", "partial", "graders uses sys.modules"),
        ("class Base: pass" + USE + "Base.__subclasses__()", "partial", "graders uses __subclasses__"),
        ("import dynamic" + USE + "1", "partial", "dynamic uses exec, which can reach any code"),
    ],
    ids=lambda part: part[:30].replace("\n", ";"),
)
def test_how_much_was_read_is_reported(source, coverage, gap):
    """
    The coverage is full, partial or opaque, with gaps.
    """
    Path("specs/pkg").mkdir(parents=True)
    Path("specs/pkg/fast.pyc").touch()
    found = spec(
        graders=source,
        helpers="def right(completion): return 1.0",
        pkg__init="",
        broken="def x(",
        dynamic="exec('x')",
    )

    assert coverage == found.code_coverage
    assert gap in "".join(found.code_gaps)


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("def right(completion): return completion in open('words.txt').read()", "open"),
        ("import json\nWORDS = json.load(some('words.txt'))" + USE + "WORDS", "load"),
        (
            "from pathlib import Path\nWORDS = Path(__file__).with_name('words.txt')"
            + USE
            + "WORDS.read_text()",
            "read_text",
        ),
        ("import numpy as np" + USE + "np.load('data/words.txt')", "load"),
        ("def right(path): return open(path).read()", "open"),
    ],
    ids=lambda part: part[:30].replace("\n", ";"),
)
def test_reading_a_file_is_a_gap_unless_the_module_names_one_that_is_listed(source, function):
    """
    A file under `depends` is in the digest; another is a gap, which is a lint finding.
    """
    document: dict[str, Any] = {"distributions": ["numpy"]}
    found = spec(graders=source, document=document)
    reason = f"graders reads files by {function}, and names none that is listed under `depends`"

    assert ("partial", (f"it: {reason}",)) == (found.code_coverage, found.code_gaps)
    assert [reason] == [
        one.reason.partition(": ")[2] for one in lint(found, imports=False) if one.rule == "unread-code"
    ]
    listed = spec(graders=source, document=document | {"depends": ["data/words.txt"]})
    assert ("full" if "words.txt" in source else "partial") == listed.code_coverage


def test_a_spec_says_why_the_code_of_its_includes_is_not_covered():
    """
    Gaps have the names of the include and of its component.
    """
    inner = spec(graders="def right(completion): return eval(completion)")
    outer = RewardSpec(name="o", version="1.0.0", include=[{"spec": inner, "as": "inner"}], combine="minimum")

    assert ("inner: it: graders uses eval, which can reach any code",) == outer.code_gaps


def test_a_declared_distribution_is_no_gap():
    """
    Its version is in the digest.
    """
    found = spec(graders="import wrapt" + USE + "wrapt.x", document={"distributions": ["wrapt"]})

    assert "full" == found.code_coverage


def test_a_file_is_parsed_once_in_a_process(monkeypatch):
    """
    Further specs of the same files only read them.
    """
    graders = "# parsed once" + USE + "1"
    before = spec(graders=graders).code_sha256
    monkeypatch.setattr(ast, "parse", None)

    assert before == spec(graders=graders).code_sha256


def test_the_digest_names_its_method_and_is_this_one():
    """
    It is equal on every machine and Python version; files are named from the spec's directory.
    """
    expected = "files:1:a55f57893fb74e3917f2efa732a3ca174aba96af08a09179cd62abe943a3e52a"

    assert expected == load("here").code_sha256 == load("there").code_sha256


def graded(completion: str) -> float:
    """A grader of this module."""
    return float(len(completion)) * WEIGHT


def other(completion: str) -> float:
    """Another grader of this module."""
    return 1.0


WEIGHT = 2.0


def scaled(function, factor):
    """Return a closure over a function."""

    @functools.wraps(function)
    def inner(completion, *, more=0.0):
        return factor * function(completion) * WEIGHT + more

    return inner


class Judge:
    """A grader with a state."""

    def __init__(self, words, client=None):
        self.words = words
        self.client = client

    def __call__(self, completion):
        return float(completion in self.words)

    def opposite(self, completion):
        return 1.0 - self(completion)


class Critic(Judge):
    """Another grader with the same state."""


def defaulting(value):
    """Return a lambda with a default argument."""
    return lambda completion, *, more=value: more


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled(graded, 2), scaled(graded, 3)),
        (scaled(graded, 2), graded),
        (scaled(graded, [1, {2: {"a"}}]), scaled(graded, [1, {2: {"b"}}])),
        (scaled(graded, re.compile("a")), scaled(graded, re.compile("a", re.IGNORECASE))),
        (scaled(graded, np.zeros(3)), scaled(graded, np.ones(3))),
        (scaled(graded, len), scaled(graded, max)),
        (scaled(scaled(graded, 1), 1), scaled(scaled(graded, 2), 1)),
        (defaulting(2), defaulting(3)),
        (defaulting(Judge("a")), defaulting(Judge("b"))),
        (defaulting(lambda completion: 1.0), defaulting(2.0)),
        (Judge(["a"]), Judge(["b"])),
        (Judge(["a"]).__call__, Judge(["b"]).__call__),
        (functools.partial(graded, ["a"]), functools.partial(graded, ["b"])),
        (functools.partial(Judge(["a"])), functools.partial(Judge(["b"]))),
        (functools.cache(scaled(graded, 2)), functools.cache(scaled(graded, 3))),
        (functools.partial(Judge, ["a"]), functools.partial(Judge, ["b"])),
        (graded, other),
        (functools.partial(graded, 1), functools.partial(other, 1)),
        (scaled(graded, 1), scaled(other, 1)),
        (scaled(graded, graded), scaled(graded, other)),
        (Judge(["a"]), Critic(["a"])),
        (Judge(["a"]).__call__, Judge(["a"]).opposite),
    ],
)
def test_what_a_function_holds_is_in_its_code(one, other):
    """
    Closures, defaults, partial arguments and object state are covered.
    """
    assert "opaque" not in (given(one).code_coverage, given(other).code_coverage)
    assert [] == [gap for spec in (given(one), given(other)) for gap in spec.code_gaps if "can't be" in gap]
    assert given(one).code_sha256 == given(one).code_sha256 != given(other).code_sha256


def test_closures_that_hold_the_same_have_one_code():
    """
    The digest does not depend on addresses.
    """
    for one, other in (
        (scaled(graded, (1, "a")), scaled(graded, (1, "a"))),
        (Judge({"b", "a"}), Judge({"a", "b"})),
    ):
        assert given(one).code_sha256 == given(other).code_sha256


@pytest.mark.parametrize(
    ("function", "coverage", "gap"),
    [
        (len, "opaque", "len has no Python source"),
        (functools.partial(len), "opaque", "len has no Python source"),
        (
            scaled(graded, threading.Lock()),
            "opaque",
            "closes over factor, a _thread.lock, which can't be read",
        ),
        (Judge([], object()), "partial", "the Judge holds client, a builtins.object, which can't be read"),
        (eval("lambda completion: 1.0"), "opaque", "has no Python source"),
        ((lambda completion: 1.0, lambda completion: 2.0)[0], "opaque", "is on one line with other lambdas"),
    ],
    ids=lambda part: part[:20] if isinstance(part, str) else "",
)
def test_what_cannot_be_read_is_named(function, coverage, gap):
    """
    C code, code made from text and library objects are gaps.
    """
    spec = given(function)

    assert coverage == spec.code_coverage
    assert gap in "; ".join(spec.code_gaps)


def test_a_module_that_runs_as_the_main_one_has_the_same_files():
    """
    `python -m` runs it as `__main__`; the files keep their names.
    """
    code = "import mttp, pkg.helpers\n\ndef right(completion):\n    return 1.0\n"
    code += "spec = mttp.RewardSpec(name='a', version='1.0.0', components=[\n"
    code += "    {'name': 'it', 'kind': 'rubric', 'use': right}])\n"
    code += "print(*[name for name, _ in spec.codes.popitem()[1].parts])\n"
    spec("pkg.train:right", pkg__init="", pkg__train=code, pkg__helpers="")
    command = [sys.executable, "-m", "pkg.train"]
    done = subprocess.run(command, cwd="specs", capture_output=True, text=True, check=True)

    files = ["pkg.train:right", "pkg/__init__.py", "pkg/helpers.py", "pkg/train.py"]
    assert files == done.stdout.split()


def test_what_exec_made_is_opaque():
    """
    A claimed file name does not change this.
    """
    names: dict[str, object] = {"__name__": __name__}
    exec(compile("def made(completion): return 1.0", __file__, "exec"), names)

    assert "opaque" == given(names["made"]).code_coverage


def test_files_and_distributions_that_are_declared_count():
    """
    The digest has the content of files and the versions of distributions.
    """
    write()
    Path("specs/words.txt").write_text("a")
    document = small(depends=["words.txt"])
    one = mttp.RewardSpec.from_dict(document, folder="specs").code_sha256
    Path("specs/words.txt").write_text("b")
    other = mttp.RewardSpec.from_dict(document, folder="specs").code_sha256
    declared = mttp.RewardSpec.from_dict(document | {"distributions": ["numpy"]}, folder="specs").code_sha256

    assert 3 == len({one, other, declared})


@pytest.mark.parametrize("fields", [{"depends": ["none.txt"]}, {"distributions": ["no-such-distribution"]}])
def test_what_is_declared_and_not_there_is_an_error(fields):
    """
    Otherwise the digest would omit it silently.
    """
    write()
    spec = mttp.RewardSpec.from_dict(small(**fields), folder="specs")

    with pytest.raises(mttp.errors.SpecError, match=r"read the file none\.txt|is not installed"):
        assert spec.code_sha256


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/dev/zero", "can't read the file /dev/zero: it is a device, not a regular file"),
        ("pipe", "can't read the file pipe: it is a pipe, not a regular file"),
        ("socket", "can't read the file socket: it is a socket, not a regular file"),
        ("linked", "can't read the file linked: it is a device, not a regular file"),
        (".", "can't read the file .: it is a directory, not a regular file"),
        ("/proc/kmsg", "can't read the file /proc/kmsg: "),
        ("/proc/self/mem", "can't read the file /proc/self/mem: "),
        ("a\0b", ": its name has a null character"),
        ("a" * 5000, ": File name too long"),
        ("large", "files under `depends` have more than 1,073,741,824 bytes together"),
    ],
    ids=lambda part: part[:12],
)
def test_what_a_spec_depends_on_are_regular_files_of_a_limited_size(name, words):
    """
    Others are not opened; the error has path and kind.
    """
    write()
    os.mkfifo("specs/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("specs/socket")
    Path("specs/linked").symlink_to("/dev/zero")
    with Path("specs/large").open("wb") as file:
        file.truncate(2**30 + 1)
    spec = mttp.RewardSpec.from_dict(small(depends=[name]), folder="specs")

    with pytest.raises(mttp.errors.SpecError, match=re.escape(words)):
        assert spec.code_sha256


def test_files_that_a_spec_depends_on_share_one_limit(monkeypatch):
    """
    Several names for one file do not raise the limit.
    """
    monkeypatch.setattr("mttp.rewards.identity.MAX_DEPENDS_BYTES", 1000)
    write()
    Path("specs/words.txt").write_text("a" * 400)
    found = [
        mttp.RewardSpec.from_dict(small(depends=names), folder="specs")
        for names in (["words.txt", "./words.txt"], ["words.txt", "./words.txt", "././words.txt"])
    ]

    assert found[0].code_sha256
    with pytest.raises(mttp.errors.SpecError, match="have more than 1,000 bytes together"):
        assert found[1].code_sha256


def test_a_given_function_and_its_target_have_one_code():
    """
    The code is equal whether read from a file or given in Python.
    """
    write()
    sys.path.insert(0, "specs")
    try:
        import graders  # type: ignore[import-not-found]
    finally:
        sys.path.remove("specs")
        for name in ("graders", "helpers"):
            sys.modules.pop(name, None)

    assert {"graders.py", "helpers.py"} == set(parts(load())) == set(parts(given(graders.math_reward)))
    codes = [load().codes["graders:math_reward"], given(graders.math_reward).codes["graders:math_reward"]]
    assert codes[0] == codes[1]


def test_another_process_has_the_same_digests():
    """
    They do not depend on the process.
    """
    spec = load()
    script = (
        "import mttp; spec = mttp.RewardSpec.load('specs/gsm8k.yaml'); print(spec.sha256, spec.code_sha256)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert [spec.sha256, spec.code_sha256] == done.stdout.split()

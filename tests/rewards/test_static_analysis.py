"""The digest of scoring code and its coverage."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from rewards.specimens import GRADERS, HELPERS, SPEC, changed, load, small, write

import mttp
from mttp.rewards.callable_code import of_function
from mttp.rewards.static_analysis import of_target

EVERYTHING = '''\
"""One of everything that a version of Python may write differently."""
import os.path as paths
from functools import partial, wraps

TABLE = {"a": 1}
TABLE["b"] = 2
TABLE.update(c=3)
BIG, SMALL, FAR, BYTES, ODD = 12345678901234567890123, 1e-300, 1j, b"\\xff", "\\u0378\\u00e9"


def timed(function):
    @wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


class Kept:
    """A class."""

    x: int = 3

    def m(self):
        return self.x + TABLE["a"]


@timed
def right(completion, *, w=BIG, **kw):
    """A docstring."""
    match completion:
        case {"a": x, **rest}:
            pass
        case [1, *y] | (2 as y):
            pass
    with (open("x") as q, open("y") as z):
        pass
    text = f"a{completion!r:>{w}}b" "c" f"{w=}{{}}{'n' + f'{w:x}'}{w:}"
    return len(text) + Kept().m() + SMALL + (lambda v: v + 1)(1) + sum(i for i in [3] if (n := i)) + most(3)


most = partial(max, 3, key=ODD.count)

if __name__ == "__main__":
    right("")
'''

EXPECTED = "e5f23737cffd0d9e14da3da3d61f7d7595f3a849c430868a6b4b49745ad6632d"


def digest(**texts: str) -> str:
    """Return the specimen's code digest with changed files."""
    return load(**texts).code_sha256


def code(source: str, name: str = "right") -> object:
    """Return the code of a function in a module with this source."""
    Path("module.py").write_text(source)
    return of_target(f"module:{name}", Path())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Whether the answer is right."""', '"""Another docstring."""'),
        ('    """Whether the answer is right."""\n', ""),
        ("def format_reward", "# a comment\n\n\ndef format_reward"),
        ('"<answer>(.*?)</answer>"', "'<answer>(.*?)</answer>'"),
        ("    return 1.0 if", "    return   1.0 if  "),
        ("return 1.0 if", "return (1.0) if"),
        ("def math_reward", "def unused():\n    return 3\n\n\ndef math_reward"),
    ],
    ids=lambda part: part[:20],
)
def test_comments_layout_and_docstrings_change_nothing(old, new):
    """
    Code that no component reaches does not either.
    """
    assert digest() == digest(graders=changed(old, new, GRADERS))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("found[1] == answer", "found[1] != answer"),
        ("(.*?)", "(.*)"),
        ('"<think>" in completion', '"<think>" not in completion'),
        ("rm -rf", "rm -r"),
        ("import SCALE, scaled", "import SCALE, SCALE as scaled"),
        ("def math_reward(completion, answer)", "def math_reward(completion, answer, strict=True)"),
    ],
    ids=lambda part: part[:20],
)
def test_a_change_of_a_grader_changes_the_digest(old, new):
    """
    A change of an imported name does as well.
    """
    assert digest() != digest(graders=changed(old, new, GRADERS))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 1.0", "SCALE = 2.0"),
        ("float(value) *", "float(value) +"),
        ("SCALE = 1.0", "SCALE = 1.0\nSCALE *= 2"),
    ],
)
def test_a_change_of_only_a_helper_or_a_constant_changes_the_digest(old, new):
    """
    The digest covers other modules that the grader uses.
    """
    assert digest() != digest(helpers=changed(old, new, HELPERS))


def test_what_is_not_reached_in_a_helper_changes_nothing():
    """
    Other constants of a reached module are not covered.
    """
    assert digest() == digest(helpers=changed("UNUSED = 1", "UNUSED = 2", HELPERS))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("X = {}\nX['a'] = 1", "X = {}\nX['a'] = 2"),
        ("X = []\nX.append(1)", "X = []\nX.append(2)"),
        ("X = 1\nX *= 2", "X = 1\nX *= 2\nX *= 2"),
        ("X = 1", "X = True"),
        ("X = 1", "X = 1.0"),
        ("X = 'a'", "X = b'a'"),
        ("X = -0.0", "X = 0.0"),
        ("X = 'a'", "X = 'a '"),
        ("X = f'{1:x}'", "X = f'{1:d}'"),
        ("from math import floor as X", "from math import ceil as X"),
        (
            "try:\n    import json as X\nexcept ImportError:\n    X = 1",
            "try:\n    import json as X\nexcept ImportError:\n    X = 2",
        ),
        ("class X:\n    y = 1", "class X:\n    y = 2"),
        (
            "class Base:\n    y = 1\nclass X(Base):\n    pass",
            "class Base:\n    y = 2\nclass X(Base):\n    pass",
        ),
        ("def wrap(f): return f\n@wrap\ndef X(): pass", "def wrap(f): return None\n@wrap\ndef X(): pass"),
        (
            "import functools\nX = functools.partial(max, 1)",
            "import functools\nX = functools.partial(max, 2)",
        ),
        ("print('once')\nX = 1", "print('twice')\nX = 1"),
    ],
    ids=lambda part: part[:25].replace("\n", ";"),
)
def test_whatever_a_constant_hangs_on_counts(before, after):
    """
    Later mutations, classes and bases, decorators and partial arguments are covered.
    """
    use = "\ndef right(completion):\n    return X\n"

    assert code(before + use).parts != code(after + use).parts
    assert "full" == code(before + use).coverage


def test_attributes_of_modules_are_followed():
    """
    Of `import helpers`, only the used attributes are covered.
    """
    source = "import helpers\n\ndef right(completion):\n    return helpers.scaled(1)\n"
    write(".")

    assert ["helpers:SCALE", "helpers:scaled", "module:helpers", "module:right"] == [
        name for name, _ in code(source).parts
    ]


def test_local_names_are_not_those_of_the_module():
    """
    An argument with the name of a function reaches nothing.
    """
    source = "def answer(): return 1\n\ndef right(completion, answer):\n    return answer\n"

    assert ["module:right"] == [name for name, _ in code(source).parts]


@pytest.mark.parametrize(
    ("source", "coverage", "gap"),
    [
        ("right = lambda completion: 1.0", "full", ""),
        (
            "def make(n):\n    def inner(completion): return n\n    return inner\nright = make(3)",
            "full",
            "",
        ),
        ("from math import sqrt as right", "opaque", "no Python source"),
        ("exec('def right(completion): return 1.0')", "opaque", "is defined at run time"),
        ("def right(completion): return eval(completion)", "partial", "eval, which can run any code"),
        ("import wrapt\ndef right(completion): return wrapt.x", "partial", "wrapt, which is not listed"),
        (f"def right(completion): return 1{' + 1' * 700}", "opaque", "nested too deeply"),
        ("import re\ndef right(completion): return re.x", "full", ""),
        ("import mttp\n@mttp.rewards.verifier\ndef right(completion): return 1", "full", ""),
        ("def inner(completion): return 1\nright = inner", "full", ""),
        ("def inner(c, n): return n\nimport functools\nright = functools.partial(inner, n=1)", "full", ""),
    ],
    ids=lambda part: part[:30].replace("\n", ";"),
)
def test_how_much_was_read_is_reported(source, coverage, gap):
    """
    The coverage is full, partial or opaque, with gaps.
    """
    found = code(source)

    assert coverage == found.coverage
    assert gap in "".join(found.gaps)


def test_a_declared_distribution_is_no_gap():
    """
    Its version is in the digest.
    """
    Path("module.py").write_text("import wrapt\ndef right(completion): return wrapt.x\n")

    assert "full" == of_target("module:right", Path(), ["wrapt"]).coverage


def graded(completion: str) -> float:
    """A grader of this module."""
    return float(len(completion)) * WEIGHT


WEIGHT = 2.0


def test_functions_that_are_given_have_their_code_too():
    """
    Their folder's code and partial arguments are covered.
    """
    plain, one, other = (
        of_function(graded),
        of_function(functools.partial(graded, 1)),
        functools.partial(graded, 2),
    )

    assert ("full", "partial") == (
        plain.coverage,
        of_function(functools.partial(graded, [object()])).coverage,
    )
    assert ["test_static_analysis:WEIGHT", "test_static_analysis:graded"] == [
        name.rpartition(".")[2] for name, _ in plain.parts
    ]
    assert 3 == len({plain.parts, one.parts, of_function(other).parts})


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
    ],
)
def test_what_a_function_holds_is_in_its_code(one, other):
    """
    Closures, defaults, partial arguments and object state are covered.
    """
    assert ("full", "full") == (of_function(one).coverage, of_function(other).coverage)
    assert of_function(one).parts != of_function(other).parts
    assert of_function(one).parts == of_function(one).parts


def test_closures_that_hold_the_same_have_one_code():
    """
    The digest does not depend on addresses.
    """
    assert of_function(scaled(graded, (1, "a"))).parts == of_function(scaled(graded, (1, "a"))).parts
    assert of_function(Judge({"b", "a"})).parts == of_function(Judge({"a", "b"})).parts


def test_what_a_closure_uses_of_its_module_counts():
    """
    Globals of an inner function are covered.
    """
    names = [name.rpartition(".")[2] for name, _ in of_function(scaled(abs, 2)).parts]

    assert "test_static_analysis:WEIGHT" in names


@pytest.mark.parametrize(
    ("given", "coverage", "gap"),
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
        ((lambda completion: 1.0, lambda completion: 2.0)[0], "opaque", "is on one line with functions"),
    ],
    ids=lambda part: part[:20] if isinstance(part, str) else "",
)
def test_what_cannot_be_read_is_named(given, coverage, gap):
    """
    C code, code made from text and library objects are gaps.
    """
    found = of_function(given)

    assert coverage == found.coverage
    assert gap in "; ".join(found.gaps)


def test_what_exec_made_is_opaque():
    """
    A claimed file name does not change this.
    """
    names: dict[str, object] = {"__name__": __name__}
    exec(compile("def made(completion): return 1.0", __file__, "exec"), names)

    assert "opaque" == of_function(names["made"]).coverage


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

    assert of_target("graders:math_reward", Path("specs")).parts == of_function(graders.math_reward).parts


def test_the_digest_is_the_same_on_every_python():
    """
    It equals the digest from Python 3.10, 3.11, 3.12 and 3.13.
    """
    write(graders=EVERYTHING, spec=changed("graders:math_reward", "graders:right", SPEC))
    found = of_target("graders:right", Path("specs"))

    assert EXPECTED == hashlib.sha256(repr(found.parts).encode()).hexdigest()


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

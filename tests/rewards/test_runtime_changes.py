"""Changes to scoring code at run time, which make the coverage partial."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewards.specimens import small

import mttp
from mttp.rewards.lint import lint
from mttp.rewards.spec import RewardSpec
from mttp.rewards.static_analysis import Code, of_target

CALL = "GRADERS['one'](completion)"
RIGHT = "\n\ndef right(completion):\n    return "
REGISTRY = "GRADERS = {}\n\ndef register(f):\n    GRADERS[f.__name__] = f\n    return f\n"


def code(**modules: str) -> Code:
    """Return the code of `graders:right` with these modules in one folder."""
    for name, source in modules.items():
        Path(f"{name}.py").write_text(source)
    return of_target("graders:right", Path())


@pytest.mark.parametrize(
    ("modules", "gap"),
    [
        (
            {"graders": REGISTRY + "\n@register\ndef one(c): return 1" + RIGHT + CALL},
            "graders.GRADERS is filled at run time, by graders.register",
        ),
        (
            {
                "registry": REGISTRY,
                "plugin": "from registry import register\n@register\ndef one(c): return 1",
                "graders": "import plugin\nfrom registry import GRADERS" + RIGHT + CALL,
            },
            "registry.GRADERS is filled at run time, by registry.register",
        ),
        (
            {
                "registry": "GRADERS = {}",
                "plugin": "import registry\nregistry.GRADERS['one'] = len",
                "graders": "import plugin\nfrom registry import GRADERS" + RIGHT + CALL,
            },
            "plugin assigns registry.GRADERS",
        ),
        (
            {
                "registry": "class Registry:\n    def add(self, f): return f\ngraders = Registry()",
                "plugin": "from registry import graders\n@graders.add\ndef one(c): return 1",
                "graders": "import plugin\nfrom registry import graders" + RIGHT + "graders.of(completion)",
            },
            "registry.graders is filled at run time, by plugin.one",
        ),
        (
            {
                "graders": "from functools import singledispatch\n@singledispatch\ndef score(c): return 0.0\n"
                "@score.register\ndef _(c: str): return 1.0" + RIGHT + "score(completion)"
            },
            "graders.score is filled at run time, by graders._",
        ),
        (
            {
                "graders": "KINDS = []\nclass Base:\n    def __init_subclass__(cls): KINDS.append(cls)\n"
                "class One(Base): pass" + RIGHT + "KINDS[0](completion)"
            },
            "graders.KINDS is filled at run time, by graders.Base",
        ),
        (
            {"graders": "class Base: pass" + RIGHT + "Base.__subclasses__()[0](completion)"},
            "uses the subclasses of Base",
        ),
        (
            {"helpers": "def scale(v): return v", "graders": "import helpers" + RIGHT + "helpers.scale(1)"}
            | {"patches": "import helpers\nhelpers.scale = lambda v: 2 * v"},
            "patches assigns helpers.scale",
        ),
        (
            {"helpers": "def scale(v): return v", "graders": "import helpers" + RIGHT + "helpers.scale(1)"}
            | {"patches": "import helpers\nsetattr(helpers, 'scale', len)"},
            "patches assigns helpers.scale",
        ),
        (
            {"graders": "import json\njson.loads = len" + RIGHT + "json.loads(completion)"},
            "graders assigns json.loads",
        ),
        (
            {
                "helpers": "def __getattr__(name): return len",
                "graders": "import helpers" + RIGHT + "helpers.scale(completion)",
            },
            "helpers.scale comes from the __getattr__ of helpers",
        ),
        (
            {"graders": "from importlib.metadata import entry_points" + RIGHT + "entry_points()"},
            "graders calls entry_points, which can run any code",
        ),
        (
            {"graders": "import pkgutil" + RIGHT + "list(pkgutil.iter_modules())"},
            "graders calls iter_modules, which can run any code",
        ),
        (
            {"graders": "from importlib import import_module" + RIGHT + "import_module(completion).x"},
            "graders calls import_module, which can run any code",
        ),
    ],
    ids=lambda part: part[:40] if isinstance(part, str) else "",
)
def test_what_is_changed_elsewhere_is_named(modules, gap):
    """
    Registries, patches, `__getattr__` and dynamic imports are gaps.
    """
    found = code(**modules)

    assert "partial" == found.coverage
    assert gap in "; ".join(found.gaps)


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("def right(completion): return completion in open('words.txt').read()", "words.txt"),
        ("import json\nWORDS = json.load(open('words.json'))" + RIGHT + "WORDS", "words.json"),
        (
            "from pathlib import Path\nWORDS = Path(__file__).with_name('words.txt')"
            + RIGHT
            + "WORDS.read_text()",
            "words.txt",
        ),
        ("import numpy as np" + RIGHT + "np.load('table.npy')", "table.npy"),
        (
            "from importlib import resources" + RIGHT + "resources.files('a').joinpath('b.txt').read_text()",
            "b.txt",
        ),
        ("def right(path): return open(path).read()", "a file with a computed name"),
    ],
    ids=lambda part: part[:30].replace("\n", ";"),
)
def test_a_file_that_is_read_is_named_unless_it_is_listed(source, read):
    """
    A file under `depends` is in the digest; another is a gap.
    """
    Path("graders.py").write_text(source)
    found = of_target("graders:right", Path(), ["numpy"])

    gap = f"graders reads {read}, which is not listed under `depends`"
    assert ("partial", (gap,)) == (found.coverage, found.gaps)
    if "." in read:
        assert "full" == of_target("graders:right", Path(), ["numpy"], [f"data/{read}"]).coverage


@pytest.mark.parametrize(
    "source",
    [
        "CACHE = {}" + RIGHT.replace("return ", "CACHE[completion] = 1\n    return ") + "CACHE",
        "TABLE = {}\nTABLE['a'] = 1\nTABLE.update(b=2)" + RIGHT + "TABLE",
        "from dataclasses import dataclass\n@dataclass\nclass Kept:\n    x: int = 1" + RIGHT + "Kept().x",
        "import mttp\n@mttp.rewards.check\ndef other(c): return 1\n@mttp.rewards.verifier"
        + RIGHT.lstrip("\n").join(["\n", "1"]),
        "def __getattr__(name): return 1" + RIGHT + "len(completion)",
        "import os.path" + RIGHT + "os.path.join(completion, 'words.txt')",
    ],
    ids=lambda part: part[:30].replace("\n", ";"),
)
def test_what_the_source_shows_is_covered(source):
    """
    Caches, tables filled by their own module and common decorators are no gaps.
    """
    assert ("full", ()) == (code(graders=source).coverage, code(graders=source).gaps)


def test_a_spec_says_why_its_code_is_not_covered():
    """
    Gaps include those of included specs and are lint findings.
    """
    Path("graders.py").write_text("def right(completion): return open('words.txt').read()")
    part = {"name": "it", "kind": "verifier", "use": "graders:right", "range": [0, 1]}
    spec = RewardSpec.from_dict(small(components=[part]), folder=".")
    outer = mttp.RewardSpec(
        name="o", version="1.0.0", include=[{"spec": spec, "as": "inner"}], combine="minimum"
    )

    reason = "graders reads words.txt, which is not listed under `depends`"
    assert ("partial", (f"it: {reason}",)) == (spec.code_coverage, spec.code_gaps)
    assert (f"inner: it: {reason}",) == outer.code_gaps
    assert [reason] == [one.reason.partition(": ")[2] for one in lint(spec) if one.rule == "unread-code"]

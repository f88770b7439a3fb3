"""The architecture's laws: what may import what, what is public, and what importing mttp costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import mttp

SOURCE = Path(mttp.__file__).parent
ROOT = SOURCE.parents[1]

ROOMS = (
    "errors",
    "semconv",
    "model",
    "codec",
    "otlp",
    "formats",
    "transports",
    "recording",
    "mist",
    "reading",
    "tables",
    "rewards",
    "study",
    "viewing",
    "integrations",
    "workflows",
    "testing",
    "cli",
    "__main__",
)
"""Everything at the top of the package; each imports only what stands before it."""
WALLS = {
    "mist": {"recording"},
    "reading": {"transports", "recording", "mist"},
    "tables": {"transports", "recording", "mist"},
    "rewards": {"transports", "recording", "mist", "reading", "tables"},
    "study": {"transports", "recording", "mist"},
    "viewing": {"transports", "recording", "mist"},
    "integrations": {"mist", "reading", "tables", "rewards", "study", "viewing"},
}
"""
What a room never imports, although that stands before it.

With the order it follows that what records never reads. What uses both sides of a wall is in `workflows`.
"""
THROUGH_WALLS = {
    (
        "integrations.stopping",
        "study",
    ): "callbacks of trainers, which users import here, diagnose the run",
}
UPWARD = {
    ("integrations.importing", "workflows.evaluations"): "a file of a library may have a finished evaluation",
    ("integrations.inspect_ai.library", "workflows.evaluations"): "Inspect hands over finished evaluations",
    (
        "integrations.ruler",
        "workflows.ruler",
    ): "specs name RULER by this module, and hash the code from here",
    ("reading.plotting", "tables.figures"): "a recording plots the rows of its episodes",
    ("reading.recording", "tables"): "a recording has the tables of its source",
    ("reading.recording", "tables.summary"): "a recording has the summary of its values",
}
"""
The imports that break a law, and why.

Not counted are public names that the `__init__` of a room exports lazily, and modules that are named in a
table, as the transports by scheme are.
"""
TRANSPORTS = {"memory", "file", "otlp"}
TRAINERS = {"art", "hud", "inspect", "openenv", "pettingzoo", "rllib", "sb3", "trl", "verifiers", "verl"}
STORES = {"s3", "spark", "clickhouse"}
"""Extras that `all` leaves out."""
SHARED_BY_COMMANDS = {"interrupts", "", "app", "conditions", "files", "help", "output", "rendering"}


def modules() -> dict[str, Path]:
    """Every module of the package, by name below `mttp`."""
    paths = {path.relative_to(SOURCE).with_suffix(""): path for path in SOURCE.rglob("*.py")}
    names = {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}
    return {
        name: path for name, path in names.items() if name != "__init__" and not name.startswith("examples")
    }


@cache
def parsed(path: Path) -> ast.Module:
    """The module's syntax."""
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    """
    The modules of the package that a module imports at run time, wherever it does, by a name in its text.

    What `import_module` loads of the module's own room is left out: it crosses no border.
    """
    found: set[str] = set()
    own = path.relative_to(SOURCE).parts[0]
    for node in _running(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("mttp.") for alias in node.names if alias.name.startswith("mttp.")
            }
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            (named, *_) = node.args
            if isinstance(named, ast.Constant) and str(named.value).startswith("mttp."):
                name = named.value.removeprefix("mttp.")
                found |= {name} if room(name) != own else set()
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mttp":
            base = (node.module or "").removeprefix("mttp").removeprefix(".")
            for alias in node.names:
                name = f"{base}.{alias.name}".strip(".")
                found |= {name} & ALL.keys() or {base} & ALL.keys()
    return found


def _running(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    nodes = [tree]
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"):
            nodes += _running(child)
    return nodes


ALL = modules()


@cache
def edges() -> list[tuple[str, str]]:
    """Each import of one module by another."""
    return [(name, target) for name, path in sorted(ALL.items()) for target in sorted(imports(path))]


def room(name: str) -> str:
    """The top-level room that a module stands in."""
    return name.partition(".")[0]


def sibling(name: str) -> str:
    """The module, or the package with all in it, that stands directly in its room."""
    return ".".join(name.split(".")[1:2])


def test_these_are_the_rooms() -> None:
    """
    Nothing else is at the top of the package.
    """
    assert set(ROOMS) == {room(name) for name in ALL}


def test_imports_point_down() -> None:
    """
    No room imports one that stands after it, but for what is listed.
    """
    wrong = [(one, other) for one, other in edges() if ROOMS.index(room(other)) > ROOMS.index(room(one))]

    assert [*UPWARD] == wrong


def test_walls() -> None:
    """
    What reads never records, and scoring and studies neither record nor send.
    """
    crossing = [(one, other) for one, other in edges() if room(other) in WALLS.get(room(one), ())]

    assert [*THROUGH_WALLS] == crossing


def test_transports_decode_no_values() -> None:
    """
    A transport sends, stores or drops spans, and never makes values of them.
    """
    decoding = []
    for name, path in ALL.items():
        tree = parsed(path) if room(name) == "transports" else ast.Module([], [])
        imported = [
            (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mttp.codec")
            for alias in node.names
        ]
        modules_of_codec = {function for module, function in imported if module == "mttp.codec"}
        decoding += [(name, function) for _, function in imported if function.startswith("decode")]
        decoding += [
            (name, ast.unparse(node))
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr.startswith("decode")
            if getattr(node.value, "id", "") in modules_of_codec
        ]

    assert [] == decoding


def test_each_class_name_is_used_once() -> None:
    """
    A name says which class is meant, wherever it is read.
    """
    found = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )

    assert [] == [name for name, count in found.items() if count > 1]


def test_siblings_do_not_import_each_other() -> None:
    """
    A transport or a command knows what it shares with the others, and none of them.
    """
    transports = {name for name in ALL if room(name) == "transports" and sibling(name) in TRANSPORTS}
    commands = {name for name in ALL if room(name) == "cli" and sibling(name) not in SHARED_BY_COMMANDS}
    wrong = [
        (one, other)
        for one, other in edges()
        for group in (transports, commands)
        if {one, other} <= group and sibling(one) != sibling(other)
    ]

    assert [] == wrong


def test_no_cycles() -> None:
    """
    Taking away, again and again, what imports nothing that is left, takes away everything.
    """
    left = {name: {target for source, target in edges() if source == name} for name in ALL}
    while True:
        free = {name for name, targets in left.items() if not targets & left.keys() - {name}}
        if not free:
            break
        left = {name: targets for name, targets in left.items() if name not in free}

    assert {} == left


def test_attribute_names_are_typed_nowhere() -> None:
    """
    Outside the generated constants no string is an attribute name of the convention.
    """
    from mttp.semconv.registry import attributes

    typed = [
        (name, node.value)
        for name, path in ALL.items()
        if room(name) != "semconv"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in attributes()
    ]

    assert [] == typed


def test_exported_names() -> None:
    """
    The public names are these; a change here is a change to everybody's code.
    """
    expected = """
        Episode Recording Reward RewardSpec Route Sampling Session Step Tokens annotate check
        compare configure current_episode current_session current_step diagnose episode errors evaluate
        extract gate group inject instrument prefer read replay rescore scan score step summarize update wrap
    """.split()

    assert expected == sorted(mttp.__all__, key=lambda name: (name.lower() == name, name))
    assert all(getattr(mttp, name) is not None for name in mttp.__all__)


def loaded_by(code: str) -> set[str]:
    """Top-level packages, and `opentelemetry`'s second level, that are loaded after running `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    return {name.partition(".")[0] for name in names} | {
        ".".join(name.split(".")[:2]) for name in names if name.startswith("opentelemetry.")
    }


HEAVY = {
    "torch",
    "gymnasium",
    "trl",
    "pyarrow",
    "duckdb",
    "pandas",
    "scipy",
    "statsmodels",
    "grpc",
    "typer",
    "rich",
    "matplotlib",
    "tensorboardX",
    "wandb",
    "ibis",
    "fsspec",
    "pyspark",
}
HEAVY |= {"opentelemetry.exporter", "requests", "google", "zstandard", "starlette", "uvicorn", "anyio"}


def test_importing_mttp_imports_nothing_heavy() -> None:
    """
    The package costs nothing until it is used: not even numpy or the OpenTelemetry SDK are loaded.
    """
    assert set() == loaded_by("import mttp") & (HEAVY | {"numpy", "opentelemetry", "pydantic", "msgspec"})


@pytest.mark.parametrize(
    "code",
    [
        "import mttp\nwith mttp.configure('memory://'), mttp.episode() as e, e.step() as t: t.reward(1)",
        "import mttp\nwith mttp.configure('file://a.jsonl'), mttp.episode(): pass\nmttp.read('a.jsonl')",
    ],
    ids=["recording", "reading"],
)
def test_recording_and_reading_import_nothing_heavy(code: str) -> None:
    """
    No trainer, no analysis and no network library is loaded by recording, or by reading values.
    """
    assert set() == loaded_by(code) & HEAVY


def test_a_helper_starts_without_opentelemetry() -> None:
    """
    It starts while training runs on the same processors, and these imports would be a third of its start.
    """
    unneeded = HEAVY | {"opentelemetry", "pydantic", "wrapt"}

    assert set() == loaded_by("import mttp.otlp.encoding.tasks") & unneeded


def test_scoring_loads_no_opentelemetry() -> None:
    """
    A spec scores, and recordings are compared, without what records.
    """
    assert set() == loaded_by("import mttp.rewards.spec, mttp.study.comparing") & {"opentelemetry"}


def test_recording_loads_nothing_that_reads() -> None:
    """
    A trainer never loads the reading half.
    """
    script = "import mttp, sys\nwith mttp.configure(transport='file://a.jsonl'), mttp.episode(): pass\n"
    script += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    reading = tuple(f"mttp.{name}" for name in ROOMS[ROOMS.index("reading") :] if name != "integrations")
    assert [] == [name for name in done.stdout.split() if name.startswith(reading)]


def test_the_version_is_reported_once() -> None:
    """
    The installed version, that of the package and that of the project file agree.
    """
    from importlib.metadata import version

    declared = [
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version")
    ]

    assert [f'version = "{mttp.__version__}"'] == declared
    assert version("mttp") == mttp.__version__


def test_the_extra_for_all_has_every_extra_but_those_of_trainers():
    """
    Some gigabytes are asked for by name, and so are training libraries and object storage with dozens of
    dependencies; what is for working on mttp itself is not for its users.
    """
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2]
    extras = re.findall(r"^(\w+) = ", section.partition("\n[")[0], re.MULTILINE)
    (brought,) = re.findall(r'^all = \["mttp\[([\w,]+)\]"\]', section, re.MULTILINE)

    assert {*extras} - {"all", "test", "dev", "docs", *TRAINERS, *STORES} == {*brought.split(",")}

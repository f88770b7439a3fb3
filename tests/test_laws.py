"""The architecture's laws: what may import what, what is public, and what importing mttp costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mttp
import mttp.recording
from mttp import model
from mttp.model.declarations import keys, table
from mttp.recording.arguments import EpisodeEnding, EpisodeFacts, ScoringFacts, TokenFacts
from mttp.semconv import attributes as a

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
    "pages",
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
    "pages": {"transports", "recording", "mist"},
    "viewing": {"transports", "recording", "mist"},
    "integrations": {"mist", "reading", "tables", "rewards", "study", "pages", "viewing"},
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
LEFT_OUT = {"s3", "spark", "clickhouse", "mcp"}
"""Extras that `all` leaves out; HUD needs another version of mcp."""
SHARED_BY_COMMANDS = {"interrupts", "", "app", "conditions", "files", "help", "output", "rendering"}


TYPED = {
    "semconv/registry.json": "the registry",
    "semconv/attributes.py": "generated from the registry",
    "semconv/metrics.py": "generated from the registry",
    "model/episodes.py": "the field of the value",
    "recording/training.py": "the argument that sets it",
    "codec/updates.py": "other names under which trainers log it",
    "integrations/art.py": "ART's name for it",
    "integrations/trl/updates.py": "TRL's name for it",
    "integrations/trl/inplace.py": "the function of accelerate that computes it",
    "study/diagnosing/control.py": "a detector computes with it",
    "study/diagnosing/detectors.py": "a detector needs it",
    "tables/sql/updates.sql": "the query of the table, which users read and run as it is",
}
"""The files in which the name of a field, `grad_norm`, is typed, and why; all else follows from these."""
LISTS = {
    ("codec.episodes", "Episode"): "each value is computed",
    ("codec.other_calls", "Call"): "names that other instrumentations have for the attributes",
}
"""Lists of many fields of one value in what records, and why they are no second declarations."""
MANY = 6
"""The number of fields from which a tuple, list, set or dictionary is a list of fields."""
SET_OTHERWISE: dict[type, str] = {
    model.Update: "discarded_episodes lag_max lag_mean lag_min",
    model.Group: "valid_count start_time end_time",
    model.Episode: "agents annotations consumed_by discarded_by final_observation metrics results return "
    "policy_version_start return_basis reward rewards sampling_share segments span_count step_count "
    "step_reward_sum",
    model.Tokens: "template_sha256",
    model.Reward: "clipped component_statuses error_type evidence grades mismatch raw value",
    model.Agent: "error_message error_type metrics policy_version_start return reward rewards",
}
"""The fields that another argument, another call, the recorder or a reader sets."""
BY_THEMSELVES = {"run_id", "trace_id", "span_id", "faults", "omissions", "extra", "complete"}
"""The fields that the recorder and the reader set of every value."""
OTHER_ARGUMENTS: dict[type, str] = {
    model.Update: "lag",
    model.Episode: "policy_version",
    model.Agent: "policy_version",
}
"""The arguments that set fields of other names."""


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


def test_the_tables_have_at_most_six_floors() -> None:
    """
    A floor is the longest chain of imports within the room.
    """
    of_tables = {name for name in ALL if room(name) == "tables"}
    below = {name: {target for source, target in edges() if source == name} & of_tables for name in of_tables}
    floors = 0
    while below:
        lowest = {name for name, targets in below.items() if not targets & below.keys() - {name}}
        below = {name: targets for name, targets in below.items() if name not in lowest}
        floors += 1

    assert floors <= 6


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


def test_the_name_of_a_field_is_typed_once() -> None:
    """
    In the registry, on its value and as an argument; elsewhere it is used, and never listed again.
    """
    files = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql", ".json")]
    typed = [path.relative_to(SOURCE).as_posix() for path in files if "grad_norm" in path.read_text()]

    assert sorted(TYPED) == sorted(typed)


def test_what_records_has_no_second_lists_of_fields() -> None:
    """
    Names and attributes of fields are taken from the declarations.
    """
    listed = {
        (name, kind.__name__)
        for name, path in ALL.items()
        if room(name) in ("codec", "otlp", "transports", "recording")
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict))
        for kind in VALUES
        if max(map(len, _fields_in(node, kind))) >= MANY
    }

    assert {*LISTS} == listed


VALUES = [kind for kind in (getattr(model, name) for name in model.__all__) if is_dataclass(kind)]


def _fields_in(node: ast.AST, kind: type) -> tuple[set[str], set[str]]:
    """Return names of fields of a class, and constants of their attributes, among the items of a display."""
    items = [*(node.keys if isinstance(node, ast.Dict) else node.elts)]  # type: ignore[attr-defined]
    texts = {item.value for item in items if isinstance(item, ast.Constant)}
    constants = {item.attr for item in items if isinstance(item, ast.Attribute)}
    if isinstance(node, ast.Dict):
        constants |= {item.attr for item in node.values if isinstance(item, ast.Attribute)}
    attributes = {getattr(a, name) for name in constants if hasattr(a, name)}
    return texts & {field.name for field in table(kind)}, attributes & {*keys(kind).values()}


def _arguments() -> dict[type, list[Any]]:
    """The calls and the typed dictionaries with the arguments that set the fields of a value."""
    return {
        model.Update: [mttp.update],
        model.Group: [mttp.group],
        model.Episode: [EpisodeFacts, EpisodeEnding],
        model.Tokens: [mttp.recording.OpenStep.tokens, TokenFacts],
        model.Reward: [ScoringFacts],
        model.Agent: [mttp.recording.OpenEpisode.agent, mttp.recording.OpenAgent.end],
    }


def _typed(given: Any) -> dict[str, str]:
    """The types of the arguments by name."""
    if isinstance(given, type):
        return {name: getattr(kind, "__forward_arg__", kind) for name, kind in given.__annotations__.items()}
    parameters = inspect.signature(given).parameters.values()
    return {
        one.name: str(one.annotation)
        for one in parameters
        if one.name != "self" and one.kind != one.VAR_KEYWORD
    }


@pytest.mark.parametrize("kind", _arguments(), ids=lambda kind: kind.__name__)
def test_each_field_has_its_argument(kind: type) -> None:
    """
    With the type of the field, if that is a number or a flag; or it is stated what else sets it.
    """
    types = {name: type_ for given in _arguments()[kind] for name, type_ in _typed(given).items()}
    declared = {field.name.rstrip("_"): field.declared for field in table(kind)}
    otherwise = BY_THEMSELVES | {*SET_OTHERWISE[kind].split()}

    assert declared.keys() - otherwise == types.keys() - {*OTHER_ARGUMENTS.get(kind, "").split()}
    for name in declared.keys() & types.keys():
        if declared[name] in ("float", "int", "bool"):
            assert types[name] in (declared[name], f"{declared[name]} | None"), name


def test_numbers_of_a_step_are_arguments_of_one_call() -> None:
    """
    And facts of a run are fields of it.
    """
    record, describe = _typed(mttp.recording.OpenStep.record), _typed(mttp.Session.describe)
    numbers = {field.name for field in table(model.Step) if field.declared in ("float", "bool")}

    assert numbers - {"reward"} == record.keys()
    assert describe.keys() <= {field.name for field in table(model.Run)}


def test_tables_have_a_column_for_each_field() -> None:
    """
    Their queries are files that users read, which are not generated.
    """
    pytest.importorskip("duckdb")
    from mttp.tables import Database

    with mttp.configure("memory://") as session, mttp.episode():
        pass
    for name, kind in (("updates", model.Update), ("groups", model.Group)):
        with Database(session) as database:
            found = {column for column, _ in database.columns(name)}

        assert {field.name for field in table(kind)} == found


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
    "sqlglot",
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

    assert set() == loaded_by("import mttp.otlp.frames") & unneeded


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

    assert {*extras} - {"all", "test", "dev", "docs", *TRAINERS, *LEFT_OUT} == {*brought.split(",")}

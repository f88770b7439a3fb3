"""The table of fields: a field of a value is declared once, with its attribute."""

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.declarations import columns, keys, table
from mttp.model.episodes import (
    Agent,
    Annotation,
    Call,
    Episode,
    Grade,
    Group,
    Reward,
    Run,
    Spec,
    Step,
    Tokens,
    Update,
)
from mttp.model.evaluations import Evaluation, TaskResult
from mttp.semconv.registry import wanted

VALUES = (Agent, Annotation, Call, Episode, Evaluation, Grade, Group, Reward, Run, Spec, Step, TaskResult)
VALUES += (Tokens, Update)
SOURCE = Path(mttp.__file__).parent
DECLARED = {
    "string": {"str", "int | str"},
    "int": {"int"},
    "double": {"float"},
    "boolean": {"bool"},
    "string[]": {"tuple[str, ...]", "list[str]", "tuple[str, str]"},
    "int[]": {"tuple[int, ...]"},
    "double[]": {"tuple[float, ...]", "tuple[float, float]"},
}
"""The types of fields for each type of the registry."""
every_value = pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)


@every_value
def test_a_field_has_the_type_of_its_attribute(kind: Any) -> None:
    """
    The registry's type is the one that the class declares.
    """
    declared = {field.name: field.declared for field in table(kind)}

    assert {} == {
        name: (declared[name], wanted(key))
        for name, key in keys(kind).items()
        if declared[name] not in DECLARED[str(wanted(key))]
    }


@every_value
def test_no_two_fields_have_one_attribute(kind: Any) -> None:
    """
    Else one of them would overwrite the other.
    """
    assert len(keys(kind)) == len({*keys(kind).values()})


@every_value
def test_every_field_says_what_it_is(kind: Any) -> None:
    """
    A docstring follows each field.
    """
    body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
    described = {
        node.target.id
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr)
    }

    assert set() == {field.name for field in table(kind)} - described


def test_numbers_of_an_update_are_arguments_of_the_call() -> None:
    """
    `mttp.update` takes each measured field by its name; the mean lag is computed from `lag`.
    """
    arguments = inspect.signature(mttp.update).parameters

    assert {"lag_mean"} == {*UPDATE_NUMBERS} - arguments.keys()


USES = {
    "model/episodes.py": "the field",
    "recording/training.py": "the argument",
    "codec/updates.py": "names under which trainers log it",
    "integrations/art.py": "ART's metrics",
    "integrations/trl/updates.py": "TRL's trainer",
    "study/diagnosing/detectors.py": "a detector",
    "study/diagnosing/control.py": "a detector",
}


def test_a_field_is_listed_once() -> None:
    """
    Besides the registry, its value and its argument there are only uses, such as a detector.
    """
    files = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "semconv" and re.search(r"\bgrad_norm\b", path.read_text(encoding="utf-8"))
    }

    assert USES.keys() == files


def test_columns_follow_from_the_types_of_fields() -> None:
    """
    Maps, lists, times and JSON; members such as steps have tables of their own.
    """
    episodes, updates = columns(Episode), columns(Update)

    assert ("string", "int64", "double", "bool") == tuple(
        episodes[name] for name in ("seed", "length", "return", "terminated")
    )
    assert ("list<string>", "map<string, double>", "json", "timestamp[us, UTC]") == tuple(
        episodes[name] for name in ("env_wrappers", "metrics", "inputs", "start_time")
    )
    assert ("map<string, int64>", "json", "list<string>") == tuple(
        updates[name] for name in ("discarded", "discarded_episodes", "sampled_versions")
    )
    assert set() == {"steps", "agents", "reward", "annotations"} & episodes.keys()

"""The table of fields: a field of a value is declared once, with its attribute."""

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mttp
from mttp.codec import fields
from mttp.codec.fields import DOCUMENTS
from mttp.codec.fields import OF_SPANS as OF_SPANS_WITH_ATTRIBUTES
from mttp.model.declarations import keys, table
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
from mttp.model.values import same
from mttp.semconv.registry import wanted

VALUES = (Agent, Annotation, Call, Episode, Evaluation, Grade, Group, Reward, Run, Spec, Step, TaskResult)
VALUES += (Tokens, Update)
SOURCE = Path(mttp.__file__).parent
DECLARED = {
    "string": {"str", "int | str"},
    "any": {"Any"},
    "int": {"int"},
    "double": {"float"},
    "boolean": {"bool"},
    "string[]": {"tuple[str, ...]", "list[str]", "tuple[str, str]"},
    "int[]": {"tuple[int, ...]", "tuple[int, int]", "IntArray"},
    "double[]": {"tuple[float, ...]", "tuple[float, float]", "FloatArray"},
}
"""The types of fields for each type of the registry."""
JSON = {"Any", "Mapping[str, Any]"}
"""The types of fields whose attribute is a JSON document."""
OF_SPANS = {*OF_SPANS_WITH_ATTRIBUTES, "error_message", "metrics", "metadata", "extra"}
OF_SPANS |= {"trace_id", "span_id", "start_time", "end_time"}
"""Fields that every value has from its span: `fields.of_span` decodes them."""
MEMBERS = {"steps", "agents", "calls", "grades", "parts", "rewards", "reward", "tokens", "results", "spec"}
MEMBERS |= {"annotations"}
"""Fields with values of their own spans or attributes."""
BY_HAND = {
    Agent: {"id"},
    Annotation: {"key", "value", "step"},
    Call: {"operation", "parameters"},
    Episode: {"final_observation", "complete", "segments", "consumed_by", "discarded_by", "sampling_share"},
    Evaluation: {"baseline_counts", "baseline_samples", "tags", "trace_ids"},
    Grade: {"name", "weight"},
    Reward: {"components", "component_statuses", "weights"},
    Run: {"packages", "python", "platform", "complete"},
    Step: {"observation", "action"},
    TaskResult: {"sample", "passed", "first_token_times", "output_token_times"},
    Tokens: {"alignment"},
    Update: {"groups", "episodes", "discarded", "discarded_episodes"},
}
"""Fields with several attributes or spans, or that readers derive: the codec of the class has them."""
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_WHOLE = st.integers(-(2**63), 2**63 - 1)
_NUMBERS = st.floats()
_ANY = st.dictionaries(_TEXTS, st.none() | st.booleans() | _WHOLE | _TEXTS, max_size=3)
VALUES_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": _TEXTS,
    "int": _WHOLE,
    "float": _NUMBERS,
    "bool": st.booleans(),
    "int | str": st.integers() | st.sampled_from(["", "a", "1a"]),
    "Any": _ANY,
    "Mapping[str, Any]": _ANY,
    "list[str]": st.lists(_TEXTS, max_size=3),
    "tuple[str, ...]": st.lists(_TEXTS, max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(_WHOLE, max_size=3).map(tuple),
    "tuple[float, ...]": st.lists(_NUMBERS, max_size=3).map(tuple),
    "tuple[float, float]": st.tuples(_NUMBERS, _NUMBERS),
    "tuple[int, int]": st.tuples(_WHOLE, _WHOLE),
    "tuple[str, str]": st.tuples(_TEXTS, _TEXTS),
}
"""Values of the declared types."""
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
        if declared[name] not in (JSON if key in DOCUMENTS else DECLARED[str(wanted(key))])
    }


@every_value
def test_no_two_fields_have_one_attribute(kind: Any) -> None:
    """
    Else one of them would overwrite the other.
    """
    assert len(keys(kind)) == len({*keys(kind).values()})


@every_value
def test_every_field_has_an_attribute(kind: Any) -> None:
    """
    Other fields are those of any span, members, and the listed ones that its codec has by hand.
    """
    others = {field.name for field in table(kind) if not field.attribute}

    assert BY_HAND.get(kind, set()) == others - OF_SPANS - MEMBERS


@every_value
def test_attributes_are_decoded_to_the_fields_they_were_encoded_from(kind: Any) -> None:
    """
    Any value of the declared types comes back equal, without faults.
    """
    known = {
        field.name: VALUES_BY_TYPE[field.declared]
        for field in table(kind)
        if field.attribute and field.declared in VALUES_BY_TYPE
    }
    chosen = st.fixed_dictionaries({}, optional=known)

    @settings(deadline=None, max_examples=50)
    @given(chosen)
    def agree(given: dict[str, Any]) -> None:
        faults: list[str] = []
        attributes = fields.encode(keys(kind), given, faults)

        found = fields.decode(kind, attributes)

        assert [] == faults
        assert same({name: value for name, value in given.items() if value not in ((), [])}, found)

    agree()


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

"""The type of a value, in the registry's words."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from mttp.model.evaluations import OUTCOMES
from mttp.rewards.document import Expected
from mttp.rewards.source_files import Coverage
from mttp.semconv import attributes as a
from mttp.semconv.registry import fits, known_values, type_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "string"),
        (True, "boolean"),
        (1, "int"),
        (1.0, "double"),
        (b"", "bytes"),
        ({"a": 1}, "map"),
        (None, "empty"),
        ([], "[]"),
        ([None], "[]"),
        (["a", None], "string[]"),
        ((1, 2), "int[]"),
        ([1.0, 2.0], "double[]"),
        ([1.0, 2], "(double|int)[]"),
        ([True, 1], "(boolean|int)[]"),
        ([[1], [2]], "int[][]"),
        (np.array([1], np.uint8), "int[]"),
        (np.array([1], np.float32), "double[]"),
        (np.array([True]), "boolean[]"),
        (np.array([]), "[]"),
    ],
)
def test_type_of(value: Any, expected: str):
    """
    Numpy's types and Python's count alike; numbers keep apart.
    """
    assert expected == type_of(value)


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (1, "double", False),
        (1.0, "double", True),
        (True, "int", False),
        (1, "boolean", False),
        ([], "double[]", True),
        ([], "string", False),
        ([1], "double[]", False),
        (np.arange(3), "int[]", True),
        (np.arange(3), "double[]", False),
        ({"a": None}, "any", True),
        (None, "any", True),
        (None, "string", False),
        (b"\x00", "bytes", True),
        ("AA==", "bytes", False),
    ],
)
def test_fits(value: Any, wanted: str, expected: bool):
    """
    An integer is no double, and an array without elements is an array of anything.
    """
    assert expected is fits(value, wanted)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (a.EVAL_OUTCOME, OUTCOMES),
        (a.REWARD_STATUS, get_args(get_args(Expected.model_fields["status"].annotation)[0])),
        (a.REWARD_VERDICT, get_args(get_args(Expected.model_fields["verdict"].annotation)[0])),
        (a.SPEC_CODE_COVERAGE, get_args(Coverage)),
    ],
    ids=["eval.outcome", "reward.status", "reward.verdict", "spec.code_coverage"],
)
def test_types_in_python_have_the_values_of_the_registry(key, words):
    """
    Words that a type checker must see are the known values of the enum.
    """
    assert sorted(known_values(key)) == sorted(words)

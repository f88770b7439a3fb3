"""Every attribute of the registry is a declared field of a value, or is listed here with its module."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path

import pytest

import mttp.model
from mttp.model.declarations import table
from mttp.semconv import attributes as a
from mttp.semconv import registry

SOURCE = Path(mttp.__file__).parent
BY_HAND = {
    "codec/annotations.py": "ANNOTATION_KEY ANNOTATION_VALUE",
    "codec/blocks.py": """
        STEPS_COLUMN STEPS_COUNT STEPS_END_TIMES STEPS_FIRST_INDEX STEPS_LAYOUT STEPS_REWARD_ERRORS
        STEPS_REWARD_SUM STEPS_START_TIMES
    """,
    "codec/calls.py": """
        GEN_AI_OPERATION_NAME GEN_AI_REQUEST_MAX_TOKENS GEN_AI_REQUEST_SEED
        GEN_AI_REQUEST_TEMPERATURE GEN_AI_REQUEST_TOP_K GEN_AI_REQUEST_TOP_P
    """,
    "codec/components.py": """
        COMPONENT_NAME REWARD_COMPONENT_NAME REWARD_SCORE REWARD_SCORE_STATUS REWARD_WEIGHT
    """,
    "codec/content.py": """
        ACTION_DTYPE ACTION_SHAPE ACTION_STRUCTURE ACTION_VALUE EPISODE_FINAL_OBSERVATION_DTYPE
        EPISODE_FINAL_OBSERVATION_SHAPE EPISODE_FINAL_OBSERVATION_STRUCTURE
        EPISODE_FINAL_OBSERVATION_VALUE OBSERVATION_DTYPE OBSERVATION_SHAPE OBSERVATION_STRUCTURE
        OBSERVATION_VALUE
    """,
    "codec/episodes.py": "METADATA METRIC",
    "codec/evals.py": """
        EVAL_BASELINE_COUNT EVAL_COUNT EVAL_RESULT_COUNT EVAL_SAMPLE_INDEX EVAL_TAGS
        GEN_AI_EVALUATION_NAME MESSAGE_ID TEST_CASE_RESULT_STATUS
    """,
    "codec/kinds.py": "SPAN_TYPE",
    "codec/other_calls.py": "GEN_AI_SYSTEM_INSTRUCTIONS",
    "codec/runs.py": "HOST_ARCH OS_TYPE PROCESS_RUNTIME_NAME PROCESS_RUNTIME_VERSION RUN_PACKAGES",
    "codec/segments.py": "SEGMENT_ID SEGMENT_SPAN_COUNT",
    "codec/tokens.py": """
        TOKEN_DATA TOKEN_ENCODING TOKEN_LAYOUT TOKEN_MEAN_LOGPROB TOKEN_SHA256 TOKEN_URI
    """,
    "codec/updates.py": "UPDATE_DISCARDED UPDATE_DISCARD_REASON UPDATE_EPISODES UPDATE_GROUPS",
    "codec/withholding.py": "OTEL_STATUS_DESCRIPTION",
    "mist/span_messages.py": "MESSAGE_REST",
    "otlp/spans/recording_span.py": "ERROR_TYPE EXCEPTION_MESSAGE EXCEPTION_STACKTRACE EXCEPTION_TYPE",
    "recording/metrics.py": "INTEGRATION_NAME",
    "recording/run_recorder.py": "GAP_EPISODES GAP_REASON GAP_SPANS TRANSPORT_NAME",
    "recording/session.py": "SERVICE_NAME",
    "testing/suite.py": "TEST_CASE_NAME",
}
"""Attributes that are no field of a value, by the module that writes or reads them; as constants."""
BY_NOBODY = """
    GAP_BYTES GEN_AI_CONVERSATION_ID HOST_CPU_MODEL_NAME OS_DESCRIPTION PROCESS_RUNTIME_DESCRIPTION
    SERVER_ADDRESS SERVER_PORT SERVICE_INSTANCE_ID SERVICE_NAMESPACE SERVICE_VERSION TEST_SUITE_NAME
""".split()
"""Attributes that no module mentions: those of other programs and of resources, and the size of a gap."""
LISTED = [(module, name) for module, names in BY_HAND.items() for name in names.split()]


def declared() -> set[str]:
    """The attributes of all fields of all values."""
    modules = [
        importlib.import_module(f"mttp.model.{each.name}")
        for each in pkgutil.iter_modules(mttp.model.__path__)
    ]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    rows = [field for each in classes if dataclasses.is_dataclass(each) for field in table(each)]
    return {key for field in rows for key in (field.attribute, field.of_tool) if key}


def mentioned(path: Path) -> set[str]:
    """The constants that a module uses as `a.NAME`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "a"
    }


def test_every_attribute_is_a_field_or_is_listed() -> None:
    """
    One that is added is declared on its value, or listed; one that is declared leaves the list.
    """
    fields = declared()
    listed = Counter([*(getattr(a, name) for _, name in LISTED), *(getattr(a, name) for name in BY_NOBODY)])

    assert [] == sorted(registry.attributes().keys() - fields - listed.keys()), "neither declared nor listed"
    assert [] == sorted(fields & listed.keys()), "declared: take it off the list"
    assert [] == [key for key, times in listed.items() if times > 1], "listed twice"


@pytest.mark.parametrize("module", BY_HAND)
def test_a_listed_attribute_is_used_by_its_module(module: str) -> None:
    """
    The list says where to look.
    """
    assert set() == set(BY_HAND[module].split()) - mentioned(SOURCE / module)


def test_what_nobody_mentions_is_mentioned_nowhere() -> None:
    """
    An attribute that a module begins to use is listed under the module.
    """
    paths = [path for path in SOURCE.rglob("*.py") if path.parent.name != "semconv"]

    assert set() == set(BY_NOBODY) & {name for path in paths for name in mentioned(path)}

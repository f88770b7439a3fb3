"""The generated modules and data, as the rest of the package uses them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import mttp.semconv
from mttp.semconv import attributes, metrics, registry, spans, values

ROOT = Path(__file__).parents[2]
RESOLVED = json.loads((ROOT / "semconv" / "resolved.json").read_text(encoding="utf-8"))
TYPES = {key: definition.type for key, definition in registry.attributes().items()}
EXACT_TYPES = {key: type_ for key, type_ in TYPES.items() if key not in registry.templates()}


def constants(module):
    """The module's constants by name."""
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def value_type(attribute):
    """The type of a catalog entry's value."""
    stated = attribute.get("annotations", {}).get("code_generation", {}).get("value_type")
    kind = attribute["type"]
    if isinstance(kind, dict):
        return {str: "string", int: "int", bool: "boolean"}[type(kind["members"][0]["value"])]
    return stated or kind


def test_version_is_the_end_of_the_schema_url():
    """
    The schema URL names the version that the package states.
    """
    expected = ("https://mttp.dev/schemas/0.1.0", "0.1.0")

    assert expected == (mttp.semconv.SCHEMA_URL, mttp.semconv.VERSION)


def test_package_imports_no_submodule():
    """
    Importing the package loads none of its modules.
    """
    code = "import sys, mttp.semconv; print([m for m in sys.modules if m.startswith('mttp.semconv.')])"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    expected = "[]\n"

    assert expected == ran.stdout


def test_the_data_are_read_once_when_they_are_needed():
    """
    Not when mttp is imported for recording, and not a second time.
    """
    code = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
import mttp
mttp.configure
times = lambda: sum(path.endswith("registry.json") for path in opened)
print(times())
from mttp.semconv import registry
registry.attributes(), registry.spans(), registry.instruments(), registry.wanted("mttp.run.id")
print(times())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "0\n1\n" == ran.stdout


def test_types_agree_with_the_resolved_registry():
    """
    The table of types matches the resolved registry for every attribute.
    """
    kinds = {entry["key"]: value_type(entry) for entry in RESOLVED["attribute_catalog"]}
    expected = {key: re.sub(r"template\[(.*)\]", r"\1", kind) for key, kind in kinds.items()}
    templates = {key for key, kind in kinds.items() if kind.startswith("template[")}
    # Exceptions are recorded as events, which no signal of ours lists, and a status is no attribute.
    elsewhere = ("exception.", "otel.status_description")
    listed = {key: kind for key, kind in TYPES.items() if not key.startswith(elsewhere)}

    assert expected == listed
    assert templates == registry.templates()


def test_every_constant_has_a_type():
    """
    The constants are exactly the keys and prefixes of the registry.
    """
    assert TYPES.keys() == set(constants(attributes).values())


def test_types_are_those_that_a_reader_knows():
    """
    A type is a primitive, an array of one, any, or bytes; and one attribute alone holds bytes.
    """
    known = {
        "string",
        "int",
        "double",
        "boolean",
        "string[]",
        "int[]",
        "double[]",
        "boolean[]",
        "any",
        "bytes",
    }
    expected = [attributes.TOKEN_DATA]

    assert {*TYPES.values()} <= known
    assert expected == [key for key, kind in TYPES.items() if kind == "bytes"]


def test_quantity_has_the_type_of_its_kind():
    """
    Identities, seeds and digests are strings, counts and positions integers, rewards and returns doubles.
    """
    words = {
        "id": "string",
        "seed": "string",
        "sha256": "string",
        "index": "int",
        "count": "int",
        "reward": "double",
        "return": "double",
        "logprob": "double",
    }
    ours = {key: kind for key, kind in EXACT_TYPES.items() if key.startswith("mttp.")}
    last_words = {key: key.replace("_", ".").rsplit(".", 1)[1] for key in ours}
    expected = {key: words[word] for key, word in last_words.items() if word in words}

    assert len(expected) > len(words)
    assert expected == {key: ours[key] for key in expected}


def test_content_is_content():
    """
    The content switch covers what was seen, done, said and thought, what went wrong in words, and token ids.
    """
    expected = {
        attributes.ANNOTATION_VALUE,
        attributes.ENV_KWARGS,
        attributes.EVAL_ERROR,
        attributes.EXCEPTION_MESSAGE,
        attributes.EXCEPTION_STACKTRACE,
        attributes.FAULTS,
        attributes.MESSAGE_REST,
        attributes.OTEL_STATUS_DESCRIPTION,
        attributes.REWARD_ERROR,
        attributes.REWARD_RAW,
        attributes.STEP_FRAME,
        attributes.STEP_REWARD_RAW,
        attributes.TOKEN_DATA,
        attributes.TOKEN_IDS,
        attributes.TOKEN_PROMPT_IDS,
        attributes.TOKEN_TEXTS,
        attributes.OBSERVATION_VALUE,
        attributes.OBSERVATION_STRUCTURE,
        attributes.ACTION_STRUCTURE,
        attributes.EPISODE_FINAL_OBSERVATION_STRUCTURE,
        attributes.ACTION_VALUE,
        attributes.EPISODE_FINAL_OBSERVATION_VALUE,
        attributes.INPUTS_JSON,
        attributes.RUN_CONFIG_JSON,
        attributes.SPEC_DOCUMENTS,
        attributes.REWARD_EVIDENCE,
        attributes.GEN_AI_SYSTEM_INSTRUCTIONS,
        attributes.GEN_AI_EVALUATION_EXPLANATION,
        attributes.GEN_AI_INPUT_MESSAGES,
        attributes.GEN_AI_OUTPUT_MESSAGES,
        attributes.GEN_AI_TOOL_CALL_ARGUMENTS,
        attributes.GEN_AI_TOOL_CALL_RESULT,
    }

    assert expected == {key for key, known in registry.attributes().items() if known.is_content}


def test_span_names():
    """
    Each kind of span has a constant for the words that its name begins with.
    """
    expected = {
        "RUN": "run",
        "RUN_START": "run.start",
        "EPISODE": "episode",
        "EPISODE_START": "episode.start",
        "SEGMENT": "segment",
        "SEGMENT_START": "segment.start",
        "STEP": "step",
        "STEPS": "steps",
        "AGENT": "agent",
        "EXECUTE_TOOL": "execute_tool",
        "REWARD": "reward",
        "GRADE": "grade",
        "GROUP": "group",
        "UPDATE": "update",
        "UPDATE_LINKS": "update.links",
        "ANNOTATE": "annotate",
        "EVAL_RUN": "eval.run",
        "EVAL_RUN_START": "eval.run.start",
        "EVAL_RESULT": "eval.result",
        "GAP": "gap",
    }

    assert expected == constants(spans)


def test_every_metric_has_its_instrument():
    """
    A metric is recorded with the instrument, unit and number type that the registry states.
    """
    facts = {
        metric["name"]: (
            metric["instrument"],
            metric["unit"],
            metric["annotations"]["code_generation"]["metric_value_type"],
            metric["brief"],
        )
        for metric in RESOLVED["registry"]["metrics"]
    }

    assert facts == {
        name: (known.kind, known.unit, known.number, known.description)
        for name, known in registry.instruments().items()
    }
    assert facts.keys() == set(constants(metrics).values())


def test_values_are_those_of_the_enums():
    """
    Each enum's known values are constants of a class of their own.
    """
    enums = {
        entry["key"]: {member["value"] for member in entry["type"]["members"]}
        for entry in RESOLVED["attribute_catalog"]
        if isinstance(entry["type"], dict)
    }
    classes = {
        name: set(constants(each).values()) for name, each in vars(values).items() if isinstance(each, type)
    }

    assert sorted(map(sorted, enums.values())) == sorted(map(sorted, classes.values()))
    assert enums["mttp.episode.status"] == classes["EpisodeStatus"]


def test_definitions_are_those_of_the_resolved_registry():
    """
    A checker knows of each span the kind, the place, and the attributes that the registry lists.
    """
    catalog = RESOLVED["attribute_catalog"]

    def keys(span, level=None):
        return {
            catalog[ref["base"]]["key"]
            for ref in span["attributes"]
            if level in (None, ref["requirement_level"])
        }

    expected = {
        span["type"]: (
            span["annotations"]["code_generation"].get("name", ""),
            span["kind"],
            span["annotations"].get("mttp", {}).get("root", False),
            keys(span, "required"),
            keys(span),
        )
        for span in RESOLVED["registry"]["spans"]
    }

    assert expected == {
        type_: (span.name, span.kind, span.is_root, span.required, span.attributes)
        for type_, span in registry.spans().items()
    }


def test_what_is_conditional_depends_on_the_same_span():
    """
    A condition names an attribute that the span has, and values that its enum knows.
    """
    odd = [
        (type_, key)
        for type_, span in registry.spans().items()
        for key, (other, words) in span.conditional.items()
        if {key, other} - span.attributes or words - {*registry.known_values(other)}
    ]

    assert not odd
    assert any(span.conditional for span in registry.spans().values())


def test_resource_must_say_which_service_and_which_run():
    """
    What the registry requires of the resource.
    """
    assert {"mttp.run": {"mttp.run.id", "service.name"}} == registry.required_of_resource()


def test_enums_have_their_known_values():
    """
    By attribute, as the resolved registry lists them.
    """
    enums = {
        entry["key"]: {member["value"] for member in entry["type"]["members"]}
        for entry in RESOLVED["attribute_catalog"]
        if isinstance(entry["type"], dict)
    }

    assert enums == {key: {*known.values} for key, known in registry.attributes().items() if known.values}

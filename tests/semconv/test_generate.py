"""What is derived from the registry."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semconv.registry import FOLDER, REGISTRY
from tool import schema_file
from tool.generate import docstring, generate, level
from tool.python_name import constant, enum_class

ROOT = Path(__file__).parents[2]
EARLIER = schema_file.previous(FOLDER / "schemas", version=REGISTRY.version)
TEXTS = generate(REGISTRY, earlier=EARLIER)


@pytest.mark.parametrize("path", TEXTS)
def test_committed_output_equals_regenerated(path):
    """
    The committed files match the registry; `python semconv/tool` updates them.
    """
    expected = TEXTS[path]

    assert expected == (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("mttp.episode.id", "EPISODE_ID"),
        ("mttp.episode.return", "EPISODE_RETURN"),
        ("mttp.reward.score", "REWARD_SCORE"),
        ("gen_ai.request.model", "GEN_AI_REQUEST_MODEL"),
        ("error.type", "ERROR_TYPE"),
    ],
)
def test_constant_leaves_our_namespace_out(key, expected):
    """
    A constant is the key in capitals, without our own namespace and with that of others.
    """
    assert expected == constant(key)


def test_enum_class_leaves_our_namespace_out():
    """
    A class of values is the key in CapWords, without our own namespace.
    """
    expected = ["RewardStatus", "GenAiOperationName"]

    assert expected == [enum_class("mttp.reward.status"), enum_class("gen_ai.operation.name")]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"])), st.sampled_from([0, 4]))
def test_docstring_says_the_text(text, indent):
    """
    A docstring evaluates to its text, whatever quotes and backslashes it holds, and fits the line.
    """
    source = docstring(text, indent)
    expected = " ".join(text.split())

    assert expected == " ".join(ast.literal_eval(source).split())
    assert all(len(line) <= 110 for line in source.splitlines() if " " in line.strip())


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("required", "required"),
        ("opt_in", "opt in"),
        ({"conditionally_required": "if it ended"}, "conditionally required if it ended"),
    ],
)
def test_level_reads_as_words(requirement, expected):
    """
    The reference spells a requirement level and its condition as a phrase.
    """
    assert expected == level(requirement)


def test_resolved_registry_points_into_its_catalog():
    """
    Every index in the resolved registry is that of an attribute, and every entry is pointed at.
    """
    resolved = json.loads(TEXTS["semconv/resolved.json"])
    registry = resolved["registry"]
    signals = [*registry["spans"], *registry["metrics"], *registry["entities"]]
    refs = [
        ref
        for signal in signals
        for section in ("attributes", "identity", "description")
        for ref in signal.get(section, ())
    ]
    pointed = {*registry["attributes"], *(ref["base"] for ref in refs)}

    assert set(range(len(resolved["attribute_catalog"]))) == pointed


def test_resolved_registry_keeps_each_form_once():
    """
    The catalog holds an attribute again only where a signal refines it.
    """
    catalog = json.loads(TEXTS["semconv/resolved.json"])["attribute_catalog"]
    forms = [json.dumps(entry, sort_keys=True) for entry in catalog]

    assert len(set(forms)) == len(forms)


def test_refinement_reaches_the_resolved_registry():
    """
    A grade's value is described as that of one component, and not as the whole reward.
    """
    resolved = json.loads(TEXTS["semconv/resolved.json"])
    catalog = resolved["attribute_catalog"]
    briefs = {
        span["type"]: catalog[ref["base"]]["brief"]
        for span in resolved["registry"]["spans"]
        for ref in span["attributes"]
        if catalog[ref["base"]]["key"] == "mttp.reward.value"
    }

    assert briefs["mttp.grade"] != briefs["mttp.reward"]


def test_the_data_say_what_is_deprecated():
    """
    With the reason, and with what to do instead.
    """
    renamed = replace(
        REGISTRY.attributes[0], key="mttp.old", deprecated={"reason": "renamed", "renamed_to": "mttp.new"}
    )
    gone = replace(renamed, key="mttp.gone", deprecated={"reason": "obsoleted", "note": "Say nothing."})
    registry = replace(REGISTRY, attributes=(*REGISTRY.attributes, renamed, gone))
    entries = json.loads(generate(registry)["src/mttp/semconv/registry.json"])["attributes"]

    assert {
        "mttp.old": ["renamed", "use `mttp.new`."],
        "mttp.gone": ["obsoleted", "Say nothing."],
    } == {entry["key"]: entry["deprecated"] for entry in entries if "deprecated" in entry}


def test_the_data_have_a_line_for_each_definition():
    """
    A change of one attribute, span or metric is a change of one line.
    """
    text = TEXTS["src/mttp/semconv/registry.json"]
    listed = json.loads(text)
    lines = [json.loads(line.rstrip(",")) for line in text.splitlines() if line.startswith('{"')]

    assert [*listed["attributes"], *listed["spans"], *listed["metrics"]] == lines


def test_reference_names_every_attribute():
    """
    No attribute is missing from the page that people read.
    """
    page = TEXTS["docs/semconv.md"]
    keys = [attribute.key for attribute in (*REGISTRY.attributes, *REGISTRY.upstream)]
    missing = [
        key for key in keys if not re.search(rf"(\n- |: |, )`{re.escape(key)}(\.<name>)?`(, | \()", page)
    ]

    assert not missing

"""Each folder of `cases` is a registry that breaks one rule, with the findings that it must cause."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from semconv.registry import DOCUMENTS
from tool.checks import CHECKS, check
from tool.load import MANIFEST, UPSTREAM, Document, document

HERE = Path(__file__).parent
CASES = sorted(path for path in (HERE / "cases").iterdir() if path.is_dir())


def documents(case: Path) -> list[Document]:
    """The case's files, with the defaults for those that it does not need to change."""
    folders = [case if (case / name).exists() else HERE / "defaults" for name in (MANIFEST, UPSTREAM)]
    return [
        document(folders[0] / MANIFEST, folder=folders[0]),
        document(folders[1] / UPSTREAM, folder=folders[1]),
        document(case / "model.yaml", folder=case),
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broken_rule_is_found(case):
    """
    A registry that breaks a rule causes the expected findings and no others; UPDATE_EXPECTED=1 rewrites them.
    """
    actual = [asdict(finding) for finding in check(documents(case))]
    path = case / "expected.json"
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(json.dumps(actual, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    expected = json.loads(path.read_text(encoding="utf-8"))

    assert expected == actual


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_breaks_its_rule_alone(case):
    """
    A case causes at least one finding, and every one is of the check that the folder is named after.
    """
    assert {case.name.split("-")[0]} == {finding.id for finding in check(documents(case))}


def test_every_check_has_a_case():
    """
    No check goes without a registry that it fails on.
    """
    assert {"shape", *(each.__name__ for each in CHECKS)} == {case.name.split("-")[0] for case in CASES}


def test_our_registry_breaks_no_rule():
    """
    The committed registry passes every check.
    """
    findings = check(DOCUMENTS)

    assert not findings


def test_finding_says_where_and_what_to_do():
    """
    A finding is printed on one line, with its file first and its check last.
    """
    (finding,) = check(documents(HERE / "cases" / "metric_is_attribute"))
    expected = (
        "model.yaml: mttp.thing.size: an attribute has this name; "
        "put the metric's namespace in the plural [metric_is_attribute]"
    )

    assert expected == str(finding)

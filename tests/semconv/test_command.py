"""The tool as people run it, on a copy of the registry."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNUSED = """file_format: definition/2
attributes:
  - {key: mttp.thing.idle, type: int, stability: development, brief: A number.}
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the registry, whose derived files are written below `tmp_path`."""
    shutil.copytree(ROOT / "semconv", tmp_path / "semconv", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(copy, *arguments):
    """The tool's exit code and what it printed."""
    command = [sys.executable, str(copy / "semconv" / "tool"), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copy, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def test_writes_what_is_missing_then_finds_it_in_order(copy):
    """
    After a run everything is there, and a check and a second run have nothing to say.
    """
    code, printed, _ = run(copy)
    expected = (0, "", "")

    assert code == 0
    assert "src/mttp/semconv/attributes.py: written" in printed
    assert expected == run(copy, "--check")
    assert expected == run(copy)


def test_check_names_what_is_stale_and_writes_nothing(copy):
    """
    A check of stale output names the file and the command to run, and fails.
    """
    run(copy)
    page = copy / "docs" / "semconv.md"
    page.write_text("stale", encoding="utf-8")
    expected = "docs/semconv.md: differs from the registry; run `python semconv/tool` and commit the result\n"

    assert (1, expected, "") == run(copy, "--check")
    assert page.read_text(encoding="utf-8") == "stale"


def test_finding_is_printed_and_nothing_is_written(copy):
    """
    A registry that breaks a rule is not generated from.
    """
    (copy / "semconv" / "model" / "thing.yaml").write_text(UNUSED, encoding="utf-8")
    expected = (
        "model/thing.yaml: mttp.thing.idle: no signal refers to it; "
        "refer to it where it is written, or delete it [unused_attribute]\n"
    )

    assert (1, expected, "") == run(copy)
    assert not (copy / "src").exists()


def test_unusable_input_has_an_exit_code_of_its_own(copy):
    """
    A file that is not YAML says nothing about the registry, which is not the same as a finding.
    """
    (copy / "semconv" / "model" / "thing.yaml").write_text("attributes: [", encoding="utf-8")
    code, printed, complaint = run(copy, "--check")

    assert (code, printed) == (2, "")
    assert "thing.yaml" in complaint


def test_unknown_option_is_unusable(copy):
    """
    A mistyped option is refused and not passed over.
    """
    code, _, complaint = run(copy, "--chek")

    assert code == 2
    assert "--chek" in complaint

"""Locks of specs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from rewards.specimens import HELPERS, SPEC, changed, load, write
from typer.testing import CliRunner

from mttp.cli.app import app
from mttp.errors import SpecError
from mttp.rewards.lint import lint
from mttp.rewards.locking import changes, lock_path, locked, read_lock, write_lock
from mttp.rewards.spec import RewardSpec

RELEASED = Path(__file__).parents[1] / "data/released/0.1.0"
"""A spec with a lock of mttp 0.1.0, which digests definitions instead of files."""
OTHER_CODE = changed("SCALE = 1.0", "SCALE = 2.0", HELPERS)
OTHER_RULES = changed("weight: 0.3", "weight: 0.4")


@pytest.fixture
def lock() -> None:
    """The specimen, locked."""
    write_lock(load())


def test_a_lock_reads_back(lock):
    """
    It has name, version and digests of the spec.
    """
    spec = load()

    assert locked(spec) == read_lock(spec.path)
    assert [] == list(changes(read_lock(spec.path), spec))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"helpers": OTHER_CODE}, ("error", "the code of gsm8k 1.2.0 differs from that in its lock")),
        ({"spec": OTHER_RULES}, ("error", "the rules of gsm8k 1.2.0 differ from those in its lock")),
        ({"spec": changed("1.2.0", "1.3.0", OTHER_RULES)}, ("warning", "is 1.3.0, and 1.2.0 in the lock")),
        ({"spec": changed("1.2.0", "1.3.0"), "helpers": OTHER_CODE}, ("warning", "is 1.3.0")),
    ],
    ids=["code", "rules", "both with another version", "code with another version"],
)
def test_a_change_under_an_unchanged_version_is_an_error(lock, texts, expected):
    """
    Under another version it is a warning.
    """
    (found,) = [one for one in lint(load(**texts)) if one.rule == "changed-unversioned"]

    assert (expected[0], 3) == (found.severity, found.line)
    assert expected[1] in found.reason


def test_a_run_warns_of_it_once(lock, caplog):
    """
    The log has one line for many loads and scores.
    """
    for _ in range(3):
        assert load(helpers=OTHER_CODE).score(completion="", answer="").status == "ok"

    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 == len(records)
    assert "differs from that in its lock" in records[0].getMessage()


def test_cases_need_no_other_version(lock):
    """
    Line endings do not either.
    """
    spec = load(spec=changed("max: 0.7", "max: 0.6"))
    Path("specs/helpers.py").write_bytes(HELPERS.replace("\n", "\r\n").encode())

    assert [] == [one for one in lint(spec) if one.rule == "changed-unversioned"]


def test_a_lock_of_another_method_is_not_comparable(caplog):
    """
    The check, the run and `mttp spec lock --check` say so and what to do; none says that the code changed.
    """
    shutil.copytree(RELEASED, "released")
    spec = RewardSpec.load("released/spec.yaml")
    expected = "the code of sums 1.0.0 is not comparable: a version of mttp that computes digests of code "
    expected += "otherwise wrote the lock; run `mttp spec lock`"
    (found,) = [one for one in lint(spec) if one.rule == "changed-unversioned"]

    assert ("warning", expected) == (found.severity, f"{found.reason}; {found.fix}")
    assert [f"released/spec.yaml: {expected}"] == [
        record.getMessage().removeprefix(f"{Path.cwd()}/") for record in caplog.records
    ]
    for arguments, code in ((["--check"], 1), ([], 0), (["--check"], 0)):
        result = CliRunner().invoke(app, ["spec", "lock", "released/spec.yaml", *arguments])
        assert (code, code == 1) == (result.exit_code, expected in result.stdout)
    assert [] == [*changes(read_lock(spec.path), RewardSpec.load("released/spec.yaml"))]


def test_the_locked_version_of_an_include_is_taken():
    """
    A newer version within the constraint is not used.
    """
    include = 'include: [{spec: "shared/style", version: "^1.0", as: style}]\ncombine:'
    inner = changed("gsm8k", "style", SPEC)
    main = write(spec=changed("combine:", include))
    Path("specs/shared").mkdir()
    Path("specs/shared/old.yaml").write_text(changed("1.2.0", "1.0.0", inner))
    write_lock(RewardSpec.load(main))
    Path("specs/shared/new.yaml").write_text(changed("1.2.0", "1.1.0", inner))

    found = [RewardSpec.load(main).included["style"].version]
    lock_path(main).unlink()
    found.append(RewardSpec.load(main).included["style"].version)

    assert ["1.0.0", "1.1.0"] == found


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"mttp": "reward-lock/9"}', '{"mttp": "reward-lock/1", "specs": 3}']
)
def test_a_broken_lock_is_an_error(text):
    """
    The error names the command that writes a new one.
    """
    path = write()
    lock_path(path).write_text(text)

    with pytest.raises(SpecError, match=r"gsm8k\.yaml\.lock: not a valid lock .* run `mttp spec lock`"):
        RewardSpec.load(path)


def test_a_spec_without_a_file_has_no_lock():
    """
    Writing its lock raises.
    """
    with pytest.raises(SpecError, match="has no file to lock"):
        write_lock(RewardSpec.from_text(SPEC))

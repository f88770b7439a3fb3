"""Files that are written as a whole have temporary names that nobody can foresee."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mttp.otlp.whole_files import replacing


def test_a_file_is_replaced_at_once() -> None:
    """
    With the end of its name, which tells a writer the format; an error leaves it as it was.
    """
    target = Path("a.jsonl.gz")
    target.write_text("old")
    names = set()
    for _ in range(2):
        with replacing(target) as partial:
            assert ("old" if not names else "new") == target.read_text()
            assert partial.name.endswith(".jsonl.gz")
            names.add(partial.name)
            partial.write_text("new")
    with pytest.raises(ZeroDivisionError), replacing(target) as partial:
        partial.write_text(str(1 / 0))

    assert 2 == len(names)
    assert ("new", [target]) == (target.read_text(), [*Path().iterdir()])


def test_a_link_of_the_temporary_name_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Even of one that somebody has guessed.
    """
    Path("precious").write_text("precious")
    monkeypatch.setattr(os, "urandom", bytes)
    with replacing(Path("a.json")) as partial:
        name = partial.name
    Path(name).symlink_to("precious")

    with pytest.raises(FileExistsError), replacing(Path("a.json")):
        raise AssertionError
    assert "precious" == Path("precious").read_text()
    assert Path(name).is_symlink()


def test_permissions_are_those_of_the_file_if_wanted() -> None:
    """
    Else those of a new one.
    """
    Path("a").touch()
    Path("a").chmod(0o640)
    with replacing(Path("a"), keep_mode=True):
        pass
    kept = stat.S_IMODE(Path("a").stat().st_mode)
    with replacing(Path("a"), mode=0o600):
        pass

    assert (0o640, 0o600) == (kept, stat.S_IMODE(Path("a").stat().st_mode))

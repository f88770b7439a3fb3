"""`mttp spec lock`: write the lock file of a reward spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.output import SpecFile, say

__all__ = ["spec_lock"]


def spec_lock(
    file: SpecFile,
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with 1 if the lock is missing, differs or is not comparable."
        ),
    ] = False,
) -> None:
    """
    Write versions and digests of a reward spec and its includes to FILE.lock.

    With a lock, `mttp spec check` reports changes under an unchanged version, a run warns of them, and an
    include that has several versions resolves to the locked version.

    \b
    Examples:
      mttp spec lock specs/gsm8k.yaml
      mttp spec lock specs/gsm8k.yaml --check

    \b
    Exit codes:
      0  Everything is fine.
      1  With --check: the lock is missing, differs or is not comparable.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.rewards.locking import changes, lock_path, read_lock, write_lock
    from mttp.rewards.spec import RewardSpec

    spec = RewardSpec.load(file)
    if not check:
        write_lock(spec)
        say(f"wrote {lock_path(Path(file))}")
        return
    lock = read_lock(spec.path) if spec.path is not None else None
    reasons = ["there is no lock"]
    if lock is not None:
        reasons = [f"{change.reason}; {change.fix}" for change in changes(lock, spec)]
    for reason in reasons:
        say(f"{file}: {reason}")
    if reasons:
        raise typer.Exit(1)

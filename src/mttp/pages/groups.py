"""Groups of episodes: their rewards and advantages, and which of them teach nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.pages.blocks import Block, axis, column, fact, facts, lines, section, series, table

__all__ = ["groups_page", "groups_table"]


def groups_page(rows: Sequence[Mapping[str, Any]], *, most: int | None) -> Block | None:
    """
    Return rewards and advantages of groups, and the share of those whose rewards are equal.

    `most` is the number of groups in the table, those with the largest standard deviation.
    """
    if not rows:
        return None
    equal = sum(map(_is_equal, rows))
    invalid = sum(row["valid"] < len(row["episodes"]) for row in rows)
    items = [
        fact("groups", len(rows)),
        fact(
            "with equal rewards",
            equal,
            detail="their advantages are 0: they teach nothing",
            state="warn" if 2 * equal > len(rows) else "plain",
        ),
        fact("with invalid rewards", invalid, state="warn" if invalid else "plain"),
    ]
    curve = lines(
        "Groups with equal rewards",
        axis("group"),
        axis("share"),
        [_equal_share(rows)],
        "Share among the groups up to this one, in order of start; at most the last 50.",
    )
    is_mixed = 0 < equal < len(rows)
    return section(
        "groups", "Groups", [facts(items), curve if is_mixed else None, groups_table(rows, most=most)]
    )


def groups_table(rows: Sequence[Mapping[str, Any]], *, most: int | None) -> Block | None:
    """Return the groups with the rewards and advantages of their members; None without any."""
    columns = [
        column("group", kind="group"),
        column("task"),
        column("members", kind="number"),
        column("mean", kind="number"),
        column("std", "standard deviation", "number"),
        column("rewards"),
        column("advantages"),
        column("episodes", "members", "episodes"),
    ]
    shown = sorted(rows, key=lambda row: -(row["deviation"] or 0.0))[:most]
    cells = [
        [
            *(
                f"{row['episodes'][0]} {row['id']}",
                row["task"],
                len(row["episodes"]),
                row["mean"],
                row["deviation"],
            ),
            *(_listed(row["rewards"]), _listed(row["advantages"]), " ".join(row["episodes"])),
        ]
        for row in shown
    ]
    left_out = len(rows) - len(shown)
    note = "The largest standard deviation first." + (
        f" {left_out:,} more are not shown." if left_out else ""
    )
    return table("Groups", columns, cells, note)


def _is_equal(group: Mapping[str, Any]) -> bool:
    return bool(group["deviation"] == 0 and group["valid"] > 1)


def _equal_share(groups: Sequence[Mapping[str, Any]]) -> Block:
    equal = np.array([*map(_is_equal, groups)], float)
    sums = np.concatenate([[0.0], np.cumsum(equal)])
    ends = np.arange(1, len(equal) + 1)
    starts = np.maximum(ends - 50, 0)
    stride = max(1, len(equal) // 500)
    share = (sums[ends] - sums[starts]) / (ends - starts)
    return series("equal rewards", ends[::stride].tolist(), share[::stride].tolist())


def _listed(values: Sequence[float | None]) -> str:
    if all(value is None for value in values):
        return ""
    return ", ".join("nan" if value is None else f"{value:.4g}" for value in values)

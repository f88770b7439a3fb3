"""`recording.plot`: plots of a recording's episodes, groups and updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mttp.errors import ConfigureError
from mttp.model.counting import NOT_COUNTED, is_counted
from mttp.model.divergence import kl_estimates
from mttp.model.episodes import Update
from mttp.reading.counted import counted_figures
from mttp.reading.drawing import (
    COLOURS,
    GREY,
    axes,
    draw_line,
    draw_points,
    draw_ranges,
    draw_running_mean,
    label,
    mark_missing,
    running_mean,
    show_legend,
    show_message,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mttp.model.figures import EpisodeFigures
    from mttp.reading.recording import Recording

__all__ = ["RecordingPlots"]

Floats: TypeAlias = "NDArray[np.float64]"

_STYLES = ("-", "--", ":", "-.")
_ERROR_COLOUR = COLOURS[1]
_EPISODE = "episode, in order of start"
_EPISODE_OF_RUN = "episode of its run, in order of start"
_LENGTHS = ("steps", "tokens")
_SOURCES = ("updates", "tokens")
_MISSING_HEIGHTS = {"error": 0.02, "abstained": 0.05, "missing": 0.08, "unfinished": 0.11}
_UNFINISHED = "not finished, or ended by an error"
_OF_RETURNS = {
    "none": "no episode has a return",
    "error": "reward error",
    "abstained": "grader abstained",
    "missing": "no return",
    "unfinished": _UNFINISHED,
}
_OF_LENGTHS = {
    "none": "no episode has token counts",
    "error": "",
    "abstained": "",
    "missing": "no length",
    "unfinished": _UNFINISHED,
}
_MISSING_COLOURS = {
    "error": _ERROR_COLOUR,
    "abstained": COLOURS[4],
    "missing": GREY,
    "unfinished": COLOURS[6],
}
_MOST_NAMED = 8
"""Runs and components that a legend names."""


class RecordingPlots:
    """
    Plots of a recording; each method draws on matplotlib axes and returns them.

    `ax` is the axes to draw on, by default those of a new figure.
    A missing value is a tick at the bottom of the plot; it is neither left out silently nor drawn as zero.
    The value of an episode that did not finish is missing; the title has the number of those left out, which
    the end of the training cut off or which evaluated the policy meanwhile.
    Colours can be told apart by colour-blind people.
    Without values, the axes have a message that says what is missing.
    Every method raises MissingExtra if matplotlib is not installed: `pip install 'mttp[plot]'`.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __repr__(self) -> str:
        return "<RecordingPlots: returns(), components(), lengths(), groups(), kl()>"

    @cached_property
    def _counted(self) -> tuple[list[EpisodeFigures], str]:
        """The episodes that count or are missing, and how many others there are."""
        from mttp.tables.figures import figures_of_values  # which computes them from rows of this recording

        recording = self._recording
        updated = {update.run_id for update in recording.updates}
        figures, left_out = counted_figures(figures_of_values(recording), recording.runs, updated)
        return figures, "; ".join(f"{count:,} {NOT_COUNTED[reason]}" for reason, count in left_out.items())

    @property
    def _figures(self) -> list[EpisodeFigures]:
        return self._counted[0]

    @cached_property
    def _runs(self) -> dict[str, list[int]]:
        """Positions of each run's episodes, by run id."""
        places: dict[str, list[int]] = {}
        for place, episode in enumerate(self._figures):
            places.setdefault(episode.run, []).append(place)
        return places

    def returns(self, *, window: int | None = None, ax: Axes | None = None) -> Axes:
        """
        Draw the return of each episode, and its running mean with a 95 % interval, over the episodes.

        `window` is the number of episodes of the running mean, by default a twentieth of them, at least 10.
        The interval is Student's t over the returns in the window, taken as independent.
        Several runs have a line each, and their episodes are counted from 1 in each run.
        A return is missing where the recording has none, or the reward's status is error or abstained.
        Raises ConfigureError if `window` is less than 2.
        """
        ax = axes(ax)
        ax.set(ylabel="return")
        values, kinds = _returns(self._figures)
        return self._over_episodes(ax, values, kinds, _OF_RETURNS, window)

    def lengths(self, unit: str | None = None, *, window: int | None = None, ax: Axes | None = None) -> Axes:
        """
        Draw the length of each episode, and its running mean with a 95 % interval, over the episodes.

        `unit` is steps or tokens (the sampled tokens of all steps); by default tokens, where episodes have
        one step or none and their tokens are known. Truncated episodes have a mark of their own.
        `window` and the interval are as for `returns`.
        Raises ConfigureError for another `unit`, and if `window` is less than 2.
        """
        unit = unit or self._unit()
        if unit not in _LENGTHS:
            raise ConfigureError(f"unit={unit!r} is not one of {', '.join(_LENGTHS)}")
        ax = axes(ax)
        ax.set(ylabel=f"episode length ({'steps' if unit == 'steps' else 'sampled tokens'})")
        values = _floats(row.length if unit == "steps" else row.completion_tokens for row in self._figures)
        kinds = [
            "" if known else "missing" if is_counted(row.status) else "unfinished"
            for row, known in zip(self._figures, np.isfinite(values), strict=True)
        ]
        cut = np.array([bool(row.truncated) for row in self._figures], dtype=bool)
        return self._over_episodes(ax, values, kinds, _OF_LENGTHS, window, truncated=cut)

    def _unit(self) -> str:
        has_tokens = any(row.completion_tokens is not None for row in self._figures)
        return "tokens" if has_tokens and all((row.length or 0) <= 1 for row in self._figures) else "steps"

    def components(self, *names: str, window: int | None = None, ax: Axes | None = None) -> Axes:
        """
        Draw the running mean of each reward component, with a 95 % interval, over the episodes.

        `names` are the components, by default all; of more than eight, the eight of most episodes.
        A component's scores are those of the episode's reward, else the sums over its steps.
        Episodes where a component has no score, for example because it failed, do not count in its mean; the
        legend has their number.
        `window` and the interval are as for `returns`.
        Raises ConfigureError for an unknown component, and if `window` is less than 2.
        """
        known = self._component_counts()
        if unknown := [name for name in names if name not in known]:
            raise ConfigureError(f"no component {unknown[0]!r}; there are {', '.join(known) or 'none'}")
        ax = axes(ax)
        ax.set(xlabel=_EPISODE, ylabel="component score")
        chosen = list(names) or list(known)[:_MOST_NAMED]
        if not chosen:
            return show_message(ax, "no reward has components")
        method = ""
        for place, name in enumerate(chosen):
            means = running_mean(_floats(row.components.get(name) for row in self._figures), window)
            colour, style = COLOURS[place % len(COLOURS)], _STYLES[place // len(COLOURS) % len(_STYLES)]
            draw_running_mean(ax, means, colour=colour, style=style, name=self._component_label(name))
            method = means.method
        if len(known) > len(chosen) and not names:
            method = f"{len(chosen)} of {len(known)} components; {method}"
        lacking = [
            place for place, row in enumerate(self._figures, 1) if not {*chosen} <= row.components.keys()
        ]
        mark_missing(ax, lacking, name="episodes lacking a score", colour=GREY, height=0.02)
        return _finish(ax, method, self._counted[1])

    def _component_counts(self) -> dict[str, int]:
        """The number of episodes with a score of each component, the most frequent first."""
        counts: defaultdict[str, int] = defaultdict(int)
        for row in self._figures:
            for name in row.components:
                counts[name] += 1
            for name in row.component_statuses:
                counts[name] += 0
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _component_label(self, name: str) -> str:
        scored = sum(name in row.components for row in self._figures)
        failed: defaultdict[str, int] = defaultdict(int)
        for row in self._figures:
            if status := row.component_statuses.get(name):
                failed[status] += 1
        counts = [f"n = {scored:,}", *(f"{count:,} {status}" for status, count in sorted(failed.items()))]
        return f"{label(name)} ({', '.join(counts)})"

    def groups(self, *, ax: Axes | None = None) -> Axes:
        """
        Draw the rewards of each group: its members, its range and its mean, over the groups.

        Groups of which all rewards are equal, and which give no advantage, are marked and counted.
        Members without a valid reward do not count in range and mean; ticks at the bottom mark their groups.
        Where no group was recorded, the episodes with one value of `group` are its members.
        """
        ax = axes(ax)
        ax.set(xlabel="group, in order of start", ylabel="reward")
        groups = self._group_rewards()
        finite = (rewards[np.isfinite(rewards)] for rewards in groups)
        known = {place: rewards for place, rewards in enumerate(finite, 1) if len(rewards)}
        if not known:
            return show_message(ax, "no group has rewards" if groups else "no group was recorded")
        flat = [place for place, group in known.items() if len(group) > 1 and group.min() == group.max()]
        places, members = np.repeat([*known], [*map(len, known.values())]), np.concatenate([*known.values()])
        draw_points(ax, places, members, colour=COLOURS[0], name=f"members (n = {len(members):,})")
        spread = [place for place in known if place not in {*flat}]
        draw_ranges(ax, spread, [known[place] for place in spread], colour=COLOURS[0], name="range and mean")
        if flat:
            share = f"{len(flat):,} of {len(known):,}, {len(flat) / len(known):.0%}"
            values = np.array([known[place][0] for place in flat])
            draw_points(
                ax, flat, values, colour=_ERROR_COLOUR, name=f"all rewards equal ({share})",
                marker="s", s=16, alpha=1.0, zorder=3,
            )  # fmt: skip
        lacking = [place for place, row in enumerate(groups, 1) if not np.isfinite(row).all() or not len(row)]
        mark_missing(ax, lacking, name="groups lacking rewards", colour=GREY, height=0.02)
        return _finish(ax, f"rewards of the members, minimum to maximum, mean; {len(groups):,} groups")

    def _group_rewards(self) -> list[Floats]:
        """The rewards of each group, NaN where one is missing."""
        rewards = {row.trace_id: row.reward for row in self._figures}
        if self._recording.groups:
            return [
                _floats(group.rewards or map(rewards.get, group.episodes)) for group in self._recording.groups
            ]
        members: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
        for row in self._figures:
            if row.group is not None:
                members[row.run, row.group].append(row.reward)
        return [_floats(rewards) for rewards in members.values()]

    def kl(self, source: str | None = None, *, window: int | None = None, ax: Axes | None = None) -> Axes:
        """
        Draw the KL divergence of the policy: as updates state it, or estimated from token log probabilities.

        `source` is updates or tokens; by default updates, if any of them has a KL.
        Updates: the recorded value of each update, a line for each run and policy, over the update's index.
        Tokens: the estimates k1, k2 and k3 of `mttp.study.kl_estimates` (Schulman 2020) against the reference
        policy, as means over the sampled tokens of each episode; `window` and the interval of their running
        means are as for `returns`.
        Raises ConfigureError for another `source`, and if `window` is less than 2.
        """
        if source not in (None, *_SOURCES):
            raise ConfigureError(f"source={source!r} is not one of {', '.join(_SOURCES)}")
        ax = axes(ax)
        if source is None:
            source = "updates" if any(row.kl is not None for row in self._recording.updates) else "tokens"
        return self._kl_of_updates(ax) if source == "updates" else self._kl_of_tokens(ax, window)

    def _kl_of_updates(self, ax: Axes) -> Axes:
        ax.set(xlabel="update", ylabel="KL (nats)")
        lines: defaultdict[tuple[str, str | None], list[Update]] = defaultdict(list)
        for update in self._recording.updates:
            lines[update.run_id, update.policy].append(update)
        if not any(_is_finite(update.kl) for update in self._recording.updates):
            return show_message(ax, "no update has a KL")
        lacking: list[float] = []
        for place, ((run, policy), updates) in enumerate(lines.items()):
            x = [at if update.index is None else update.index for at, update in enumerate(updates)]
            values = _floats(update.kl for update in updates)
            name = label(policy or self._run_name(run)) if 1 < len(lines) <= _MOST_NAMED else None
            draw_line(ax, x, values, colour=COLOURS[place % len(COLOURS)], name=name)
            lacking += [at for at, value in zip(x, values, strict=True) if not math.isfinite(value)]
        mark_missing(ax, lacking, name="no finite KL", colour=GREY, height=0.02)
        return _finish(ax, f"KL as recorded by {len(self._recording.updates):,} updates")

    def _kl_of_tokens(self, ax: Axes, window: int | None) -> Axes:
        ax.set(xlabel=_EPISODE, ylabel="KL from the reference policy\n(nats per token)")
        estimates = [
            kl_estimates(step.tokens for step in episode.steps if step.tokens is not None)
            for episode in self._recording
        ]
        tokens = sum(estimate.tokens for estimate in estimates if estimate is not None)
        if not tokens:
            return show_message(ax, "no tokens have logprobs and ref_logprobs,\nand no update has a KL")
        method = ""
        for colour, style, name in zip(COLOURS, _STYLES, ("k1", "k2", "k3"), strict=False):
            values = _floats(None if estimate is None else getattr(estimate, name) for estimate in estimates)
            means = running_mean(values, window)
            draw_running_mean(ax, means, colour=colour, style=style, name=name)
            method = means.method
        lacking = [place for place, estimate in enumerate(estimates, 1) if estimate is None]
        mark_missing(ax, lacking, name="no log probabilities", colour=GREY, height=0.02)
        return _finish(ax, f"{method}; {tokens:,} tokens")

    def _over_episodes(
        self,
        ax: Axes,
        values: Floats,
        kinds: Sequence[str],
        names: Mapping[str, str],
        window: int | None,
        *,
        truncated: NDArray[np.bool_] | None = None,
    ) -> Axes:
        """Draw a value of each episode, and the running mean of each run; `kinds` says why one is missing."""
        runs = self._runs
        ax.set(xlabel=_EPISODE if len(runs) < 2 else _EPISODE_OF_RUN)
        known = np.isfinite(values)
        if not known.any():
            return show_message(ax, names["none"] if len(values) else "no episodes were recorded")
        number = np.empty(len(values), dtype=int)
        method = ""
        for place, (run, members) in enumerate(runs.items()):
            number[members] = np.arange(1, len(members) + 1)
            of_run, colour = values[members], COLOURS[place % len(COLOURS)]
            count = int(np.isfinite(of_run).sum())
            name = None if len(runs) == 1 else f"{label(self._run_name(run))} (n = {count:,})"
            points = f"single episodes (n = {count:,})" if len(runs) == 1 else None
            draw_points(ax, number[members], of_run, colour=colour, name=points)
            means = running_mean(of_run, window)
            draw_running_mean(
                ax, means, colour=colour, name="running mean" if len(runs) == 1 else name,
                style=_STYLES[place // len(COLOURS) % len(_STYLES)],
            )  # fmt: skip
            method = method or means.method
        if truncated is not None and truncated.any():
            draw_points(
                ax, number[truncated & known], values[truncated & known], colour=_ERROR_COLOUR, marker="^",
                s=14, alpha=0.8, name=f"truncated (n = {int((truncated & known).sum()):,})",
            )  # fmt: skip
        for kind, height in _MISSING_HEIGHTS.items():
            chosen = number[[missing == kind for missing in kinds]]
            mark_missing(ax, chosen, name=names[kind], colour=_MISSING_COLOURS[kind], height=height)
        method = method if len(runs) == 1 else f"{len(runs)} runs; {method}"
        return _finish(ax, method, self._counted[1])

    def _run_name(self, run_id: str) -> str:
        return next((run.name for run in self._recording.runs if run.id == run_id and run.name), run_id)


def _returns(figures: Sequence[EpisodeFigures]) -> tuple[Floats, list[str]]:
    """The return of each episode, NaN where it is missing, and why it is missing."""
    values = _floats(row.return_ for row in figures)
    kinds = [
        "unfinished"
        if not is_counted(row.status)
        else row.reward_status
        if row.reward_status in ("error", "abstained")
        else ""
        if known
        else "missing"
        for row, known in zip(figures, np.isfinite(values), strict=True)
    ]
    values[[kind != "" for kind in kinds]] = math.nan
    return values, kinds


def _floats(values: Iterable[float | None]) -> Floats:
    """The values as floats; NaN for None and for infinities."""
    floats = np.array([math.nan if value is None else value for value in values], dtype=float)
    floats[~np.isfinite(floats)] = math.nan
    return floats


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _finish(ax: Axes, method: str, left_out: str = "") -> Axes:
    """Add the method and what is left out as a title, and the legend; return the axes."""
    ax.set_title("; ".join(filter(None, (method, left_out))), loc="left", fontsize="small", color=GREY)
    show_legend(ax)
    return ax

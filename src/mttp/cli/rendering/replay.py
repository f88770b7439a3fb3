"""Replays, steps and episodes side by side as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from mttp.model.episodes import Episode, Step
from mttp.pages.words import count, number, printed, shortened

if TYPE_CHECKING:
    from mttp.study.alignment import AlignedStep, Alignment, StepDifference
    from mttp.workflows.replaying import Replay

__all__ = ["render", "side_by_side", "steps"]

_MOST = 10
_WIDTH = 300


def render(found: Replay) -> RenderableType:
    """Whether it was reproduced; else the first difference."""
    seed = "" if found.seed is None else f", seed {found.seed}"
    parts: list[RenderableType] = [printed(f"{found.episode[:8]} {found.env}{seed}")]
    if found.before:
        parts.append(
            Text(f"after {count(len(found.before), 'earlier episode')}, from the last one with a seed")
        )
    if found.reproduced is None:
        parts.append(
            Text(
                f"rewards only: {count(found.steps, 'step')} agree in reward and end; no observation was "
                "recorded, so the states are unknown",
                style="yellow",
            )
        )
    elif found.divergence is None:
        parts.append(
            Text(f"reproduced: {count(found.steps, 'step')} within {found.tolerance:g}", style="bold green")
        )
    else:
        one = found.divergence
        where = "after the reset" if one.step < 0 else f"at step {one.step}"
        away = "" if one.distance is None else f", {one.distance:.3g} apart"
        parts.append(printed(f"diverged {where}: {one.what}{away}", style="bold red"))
        parts += [_labelled("recorded", one.recorded), _labelled("seen", one.seen)]
    parts += [printed(f"note: {note}") for note in found.notes]
    return Group(*parts)


def _labelled(label: str, value: Any) -> Text:
    return Text.assemble((f"  {label:<12}", "dim"), printed(shortened(str(value), _WIDTH)))


def side_by_side(found: Alignment) -> RenderableType:
    """The first steps that differ, with both values of each difference."""
    differing = [one for one in found.steps if one.differences]
    counts = f"{len(differing):,} of {count(len(found.steps), 'step')} differ"
    parts: list[RenderableType] = [
        printed(f"{found.first[:8]} and {found.second[:8]}: {counts}", style="bold")
    ]
    for one in differing[:_MOST]:
        parts += [Text(), *_differing(one)]
    if len(differing) > _MOST:
        parts += [Text(), Text(f"{len(differing) - _MOST:,} more steps differ, listed by --json")]
    return Group(*parts)


def _differing(one: AlignedStep) -> list[RenderableType]:
    agent = "" if one.agent is None else f" of {one.agent}"
    lines: list[RenderableType] = [printed(f"step {one.index}{agent}", style="bold")]
    for difference in one.differences:
        lines += _values(difference)
    return lines


def _values(found: StepDifference) -> list[RenderableType]:
    first, second, what = found.first, found.second, found.what
    if what == "missing":
        return [Text(f"  only the {'first' if first else 'second'} episode has this step")]
    if found.token is not None:
        what = f"{found.token.array} from token {found.token.position} on"
        first, second = found.token.first, found.token.second
    return [printed(f"  {what}"), _labelled("  first", first), _labelled("  second", second)]


def steps(episode: Episode) -> list[RenderableType]:
    """A page for each step."""
    total = len(episode.steps)
    return [_page(step, place, total) for place, step in enumerate(episode.steps)]


def _page(step: Step, place: int, total: int) -> RenderableType:
    agent = "" if step.agent is None else f" of {step.agent}"
    parts: list[RenderableType] = [
        printed(f"step {step.index}{agent} ({place + 1:,} of {total:,})", style="bold")
    ]
    for name in ("observation", "action"):
        if (value := getattr(step, name)) is not None:
            parts.append(_labelled(name, value))
    if step.tokens is not None:
        parts.append(
            _labelled(
                "tokens", f"{step.tokens.prompt_count or 0:,} prompt, {step.tokens.count or 0:,} sampled"
            )
        )
    for call in step.calls:
        parts.append(_labelled("call", f"{call.name}({call.arguments}) -> {call.result}"))
    reward = number(step.reward) if step.reward_status == "ok" else step.reward_status
    ends = [word for word in ("terminated", "truncated") if getattr(step, word)]
    parts.append(_labelled("reward", ", ".join([reward, *ends])))
    return Group(*parts)

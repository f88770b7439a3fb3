"""Replays, steps, and episodes side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mttp.pages.blocks import Block, column, fact, facts, note, table
from mttp.pages.words import count, number, shortened

if TYPE_CHECKING:
    from mttp.model.episodes import Step
    from mttp.study import Alignment, Replay
    from mttp.study.alignment import StepDifference

__all__ = ["alignment_page", "page", "step_page"]

_WIDTH: Final = 300


def page(replay: Replay) -> Iterator[Block | None]:
    """Yield whether an episode was reproduced; else the first difference."""
    seed = "" if replay.seed is None else f", seed {replay.seed}"
    yield note(f"{replay.episode[:8]} {replay.env}{seed}")
    if replay.before:
        yield note(f"after {count(len(replay.before), 'earlier episode')}, from the last one with a seed")
    steps, divergence = count(replay.steps, "step"), replay.divergence
    if replay.reproduced is None:
        what = "no observation was recorded, so the states are unknown"
        yield note(f"rewards only: {steps} agree in reward and end; {what}", "warn")
    elif divergence is None:
        yield note(f"reproduced: {steps} within {replay.tolerance:g}", "good")
    else:
        where = "after the reset" if divergence.step < 0 else f"at step {divergence.step}"
        away = "" if divergence.distance is None else f", {divergence.distance:.3g} apart"
        yield note(f"diverged {where}: {divergence.what}{away}", "bad")
        yield _values(("recorded", divergence.recorded), ("seen", divergence.seen))
    yield from (note(f"note: {text}") for text in replay.notes)


def alignment_page(alignment: Alignment) -> Iterator[Block | None]:
    """Yield the first steps that differ, with both values of each difference."""
    differing = [step for step in alignment.steps if step.differences]
    counts = f"{len(differing):,} of {count(len(alignment.steps), 'step')} differ"
    yield note(f"{alignment.first[:8]} and {alignment.second[:8]}: {counts}", "warn" if differing else "good")
    columns = [column("step", kind="number"), *map(column, ("agent", "what", "first", "second"))]
    rows = [
        (step.index, step.agent, *_difference(difference))
        for step in differing
        for difference in step.differences
    ]
    yield table("Differences", columns, rows)


def _difference(difference: StepDifference) -> tuple[str, str | None, str | None]:
    first, second, token = difference.first, difference.second, difference.token
    if difference.what == "missing":
        return f"only the {'first' if first else 'second'} episode has this step", None, None
    if token is not None:
        what = f"{token.array} from token {token.position} on"
        return what, _short(token.first), _short(token.second)
    return difference.what, _short(first), _short(second)


def step_page(step: Step, place: int, total: int) -> Iterator[Block | None]:
    """Yield a step: what was seen and done, tokens, calls and the reward."""
    agent = "" if step.agent is None else f" of {step.agent}"
    yield note(f"step {step.index}{agent} ({place + 1:,} of {total:,})")
    values = [
        (name, value) for name in ("observation", "action") if (value := getattr(step, name)) is not None
    ]
    if step.tokens is not None:
        prompt, sampled = step.tokens.prompt_count or 0, step.tokens.count or 0
        values.append(("tokens", f"{prompt:,} prompt, {sampled:,} sampled"))
    values += [("call", f"{call.name}({call.arguments}) -> {call.result}") for call in step.calls]
    reward = number(step.reward) if step.reward_status == "ok" else step.reward_status
    ends = (word for word in ("terminated", "truncated") if getattr(step, word))
    yield _values(*values, ("reward", ", ".join([reward, *ends])))


def _values(*values: tuple[str, Any]) -> Block | None:
    return facts([fact(name, _short(value)) for name, value in values])


def _short(value: Any) -> str:
    return shortened(str(value), _WIDTH)

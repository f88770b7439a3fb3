"""Values as HTML for notebooks: tables, and episodes to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from mttp.model.chat import Message, message_lines, messages, seen, speaker
from mttp.model.printable import visible

if TYPE_CHECKING:
    from mttp.model.episodes import Episode, Step
    from mttp.model.scorings import Reward

__all__ = ["episode_html", "html_table"]

_MAX_STEPS = 50
"""Largest number of steps of an episode."""
_MAX_TEXT = 2_000
"""Largest number of characters of a message, an observation or an action."""
_PRE = '<pre style="white-space: pre-wrap; text-align: left; margin: 0 0 0.5em 1em">'


def html_table(
    title: str, columns: Iterable[object], rows: Iterable[Iterable[object]], *, more: str = ""
) -> str:
    """Return an HTML table of plain values; `more` is a sentence that follows it."""
    body = "".join(_row("td", row) for row in rows)
    after = f"<p>{_escaped(more)}</p>" if more else ""
    return (
        f"<div><p>{_escaped(title)}</p>"
        f"<table><thead>{_row('th', columns)}</thead><tbody>{body}</tbody></table>{after}</div>"
    )


def _row(tag: str, cells: Iterable[object]) -> str:
    written = "".join(f"<{tag}>{_escaped(_text(cell))}</{tag}>" for cell in cells)
    return f"<tr>{written}</tr>"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _escaped(text: object, *, lines: bool = False) -> str:
    return escape(visible(text, lines=lines))


def episode_html(episode: Episode) -> str:
    """
    Return an episode to read: its reward and components, then observation, action and reward of each step.

    Of a chat, each step has only its new messages. Texts are escaped and shortened; the first 50 steps are
    shown, with the number of the others.
    """
    parts = [html_table(repr(episode)[1:-1], _COMPONENT_COLUMNS, _components(episode.reward))]
    parts += [f"<p>{_escaped(line)}</p>" for line in _reward_lines(episode.reward)]
    if episode.error_type is not None:
        parts.append(f"<p>error {_escaped(episode.error_type)}: {_escaped(episode.error_message or '')}</p>")
    parts += _steps(episode)
    if len(episode.steps) > _MAX_STEPS:
        parts.append(f"<p>{_MAX_STEPS} of {len(episode.steps):,} steps are shown.</p>")
    return f"<div>{''.join(parts)}</div>"


_COMPONENT_COLUMNS = ("component", "score", "weight", "status", "explanation")


def _components(reward: Reward) -> Iterator[tuple[object, ...]]:
    for grade in reward.all_grades:
        yield grade.name, grade.value, grade.weight, grade.status, grade.explanation or grade.error


def _reward_lines(reward: Reward) -> Iterator[str]:
    value = "" if reward.value is None else f" {reward.value:.6g}"
    by = "" if reward.grader is None else f" by {reward.grader}"
    yield f"reward{value} ({reward.status}){by}"
    yield from (text for text in (reward.error, reward.explanation) if text)


def _steps(episode: Episode) -> Iterator[str]:
    conversations: dict[str | None, list[Message]] = {}
    for step in episode.steps[:_MAX_STEPS]:
        before = conversations.get(step.agent, [])
        shown, sent = seen(step, before), messages(step.action)
        body = _content("observation", step.observation) if shown is None else _chat(shown.new)
        body += _content("action", step.action) if sent is None else _chat(sent)
        conversations[step.agent] = [*(messages(step.observation) or before), *(sent or [])]
        yield f"<details open><summary>{_escaped(_summary(step))}</summary>{body}</details>"


def _summary(step: Step) -> str:
    of_agent = "" if step.agent is None else f" of {step.agent}"
    reward = "" if step.reward is None else f", reward {step.reward:.6g}"
    status = f", reward {step.reward_status}" if step.reward_status not in ("ok", "missing") else ""
    error = "" if step.error_type is None else f", error {step.error_type}"
    return f"step {step.index}{of_agent}{reward}{status}{error}"


def _chat(shown: Iterable[Message]) -> str:
    return "".join(_block(speaker(message), "\n".join(message_lines(message))) for message in shown)


def _content(name: str, content: object) -> str:
    return "" if content is None else _block(name, content if isinstance(content, str) else repr(content))


def _block(name: str, text: str) -> str:
    more = f"… ({len(text) - _MAX_TEXT:,} more characters)" if len(text) > _MAX_TEXT else ""
    return f"<b>{_escaped(name)}</b>{_PRE}{_escaped(text[:_MAX_TEXT], lines=True)}{more}</pre>"

"""Blocks that are left elsewhere, such as those of generators, leave nothing current."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from opentelemetry import trace

import mttp

tracer = trace.get_tracer("another.library")


def foreign_parent() -> int:
    """Return the parent that a span of another library gets here; 0 for none."""
    with tracer.start_as_current_span("chat") as span:
        parent = getattr(span, "parent", None)
        return parent.span_id if parent is not None else 0


async def turns() -> AsyncIterator[int]:
    with mttp.episode(env="chat"), mttp.step():
        yield 1


def plain_turns() -> Iterator[int]:
    with mttp.episode(env="chat") as episode, episode.agent("a"), mttp.step():
        yield 1


async def left_early() -> None:
    async for _ in turns():
        break
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def closed_in_another_task() -> None:
    generator = turns()
    await generator.__anext__()
    closing: asyncio.Task[None] = asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
    await closing


async def exited_in_another_task() -> None:
    block = contextlib.asynccontextmanager(turns)()
    await block.__aenter__()
    await asyncio.create_task(block.__aexit__(None, None, None))  # type: ignore[arg-type]


async def closed_by_a_thread() -> None:
    generator = plain_turns()
    next(generator)
    thread = threading.Thread(target=generator.close)  # type: ignore[attr-defined]
    thread.start()
    thread.join()


async def closed_in_the_order_of_their_start() -> None:
    first, second = plain_turns(), plain_turns()
    next(first)
    next(second)
    first.close()  # type: ignore[attr-defined]
    second.close()  # type: ignore[attr-defined]


async def collected() -> None:
    generator = plain_turns()
    next(generator)
    del generator


@pytest.mark.parametrize(
    "play",
    [
        left_early,
        closed_in_another_task,
        exited_in_another_task,
        closed_by_a_thread,
        closed_in_the_order_of_their_start,
        collected,
    ],
)
def test_a_block_that_is_left_elsewhere_is_current_no_more(play: Callable[[], object]) -> None:
    """Spans of other libraries are roots again, and what encloses the block is current again."""

    async def inside_and_outside() -> list[object]:
        await play()  # type: ignore[misc]
        states: list[object] = [foreign_parent(), bool(mttp.current_step()), bool(mttp.current_episode())]
        with mttp.episode() as outer:
            await play()  # type: ignore[misc]
            states += [foreign_parent() == int(outer.span_id, 16), mttp.current_episode() is outer]
            states += [mttp.inject()["traceparent"].split("-")[2] == outer.span_id]
        return states

    with mttp.configure("memory://") as session:
        states = asyncio.run(inside_and_outside())

    assert states == [0, False, False, True, True, True]
    assert len(mttp.read(session).episodes) >= 3


def test_an_ended_step_is_no_parent_in_its_block() -> None:
    """What follows belongs to the episode that is still open, and the step's span keeps its own id."""
    with mttp.configure("memory://") as session, mttp.episode() as episode:
        with episode.step() as step:
            step.end()
            parent = foreign_parent()
        after = step.span.get_span_context().span_id

    (recorded,) = mttp.read(session).episodes
    assert (parent, after) == (int(episode.span_id, 16), int(step.span_id, 16))
    assert [each.span_id for each in recorded.steps] == [step.span_id]


def test_many_blocks_left_in_one_task_make_no_chain() -> None:
    """A task may leave any number of generators early."""

    async def rollouts() -> int:
        for _ in range(3000):
            await closed_in_another_task()
        return foreign_parent()

    with mttp.configure("memory://"):
        assert asyncio.run(rollouts()) == 0

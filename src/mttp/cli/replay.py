"""`mttp replay`: play a recorded episode again, or put two episodes side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mttp.cli.output import Json, console, fail, print_json, print_page, progress
from mttp.errors import ConfigureError

if TYPE_CHECKING:
    from mttp.model.episodes import Episode

__all__ = ["replay"]


def replay(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A recording.", show_default=False)],
    *,
    episode: Annotated[
        str | None, typer.Option("--episode", metavar="ID", help="The beginning of its trace id.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="ID", help="Compare with this episode, and play nothing."),
    ] = None,
    against_run: Annotated[
        str | None,
        typer.Option("--against-run", metavar="PATH", help="The recording of the episode of --against."),
    ] = None,
    steps: Annotated[
        bool,
        typer.Option("--steps", help="Show the recorded steps, one at a time on a terminal; play nothing."),
    ] = False,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="MODULE:FUNCTION", help="A function that makes the environment."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="NUMBER", min=0, help="Largest difference of equal numbers."),
    ] = 1e-6,
    json: Json = False,
) -> None:
    """
    Play a recorded episode again in its environment, or compare two episodes.

    The environment is made from its recorded id, arguments and seed, and gets the recorded actions.
    Each observation, reward and end is compared with the recorded one.

    \b
    Examples:
      mttp replay runs/pole.jsonl --episode 23cd
      mttp replay runs/pole.jsonl --episode 23cd --against 9f01
      mttp replay runs/pole.jsonl --episode 23cd --steps

    \b
    Exit codes:
      0  Everything is fine: reproduced, or equal.
      1  The replay diverged, or the episodes differ.
      2  Wrong usage, an episode that can't be played, or rewards only.
    """
    from mttp.pages.replay import alignment_page, page
    from mttp.reading import read
    from mttp.study import align
    from mttp.study import replay as replayed
    from mttp.workflows.replaying import chosen

    with progress([path]) as advance:
        recording = read(path, progress=advance)
    played = chosen(recording, episode)
    if steps:
        _show(played, json=json)
        return
    if against is not None or against_run is not None:
        other = recording if against_run is None else read(against_run)
        alignment = align(played, chosen(other, against), tolerance=tolerance)
        if json:
            print_json(alignment.to_dict())
        else:
            print_page(alignment_page(alignment))
        fail([repr(alignment).strip("<>")] if alignment.first_difference else [])
        return
    result = replayed(recording, episode=played.trace_id, env=_factory(env), tolerance=tolerance)
    if json:
        print_json(result.to_dict())
    else:
        print_page(page(result))
    fail([f"{result.divergence}"] if result.reproduced is False else [])
    if result.reproduced is None:
        raise typer.Exit(2)


def _show(episode: Episode, *, json: bool) -> None:
    """Print each step, and wait on a terminal before the next one."""
    from mttp.pages.replay import step_page

    if json:
        print_json({"episode": episode.trace_id, "steps": list(episode.steps)})
        return
    out = console()
    stops = out.is_terminal and sys.stdin.isatty()
    total = len(episode.steps)
    for place, step in enumerate(episode.steps):
        print_page(step_page(step, place, total))
        if stops and place < total - 1 and out.input("Enter: next step, q: quit ").strip() == "q":
            return


def _factory(name: str | None) -> Callable[[], Any] | None:
    """The function that MODULE:FUNCTION names."""
    if name is None:
        return None
    module, colon, function = name.partition(":")
    try:
        sys.path.insert(0, str(Path.cwd()))
        factory: Callable[[], Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigureError(
            f"--env {name!r} is not MODULE:FUNCTION that can be imported: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    if not colon or not callable(factory):
        raise ConfigureError(f"--env {name!r} is not MODULE:FUNCTION")
    return factory

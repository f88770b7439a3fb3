"""`mttp size`: what recording takes, before it is done."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, console, print_json

__all__ = ["size"]


def size(
    *,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes that record.")] = 1,
    steps: Annotated[float, typer.Option("--steps", metavar="N", help="Steps of an episode.")] = 8.0,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Steps per second of each worker.")
    ] = 1.0,
    tokens: Annotated[float, typer.Option("--tokens", metavar="N", help="Sampled tokens of a step.")] = 256.0,
    no_logprobs: Annotated[
        bool, typer.Option("--no-logprobs", help="Tokens have no log probabilities.")
    ] = False,
    characters: Annotated[
        float,
        typer.Option("--characters", metavar="N", help="Characters of a step's observation and action."),
    ] = 1300.0,
    calls: Annotated[float, typer.Option("--calls", metavar="N", help="Tool calls of a step.")] = 0.0,
    content: Annotated[
        bool, typer.Option("--content", help="A collector gets content too; files do unless --no-content.")
    ] = False,
    no_content: Annotated[
        bool, typer.Option("--no-content", help="Files get neither content nor token ids.")
    ] = False,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Token ids are written although content is not.")
    ] = False,
    to: Annotated[
        str, typer.Option("--to", metavar="TRANSPORT", help="file, gzip, zstd or collector.")
    ] = "file",
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="With --to collector: the store behind it: collector, jaeger, tempo, phoenix, mlflow or "
            "strict.",
        ),
    ] = "collector",
    days: Annotated[float, typer.Option("--days", metavar="N", help="How long recordings are kept.")] = 30.0,
    episodes: Annotated[
        float | None,
        typer.Option(
            "--episodes", metavar="N", help="Episodes in all; by default as many as are played in --days."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """
    Estimate what recording takes: bytes, spans, requests, memory and storage.

    Uses the measured bytes of each part of a recording, and public figures for Collectors; an episode has
    one reward of three components.
    Options describe one step, one episode or one worker; rates and sizes are of all workers.

    \b
    Examples:
      mttp size --workers 64 --rate 0.2 --tokens 512
      mttp size --workers 1000 --rate 0.2 --to collector --profile tempo
      mttp size --workers 8 --episodes 100000 --to zstd --json

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, such as a number that is out of range.
    """
    from mttp.cli.rendering.sizes import document, render
    from mttp.study.sizing import Workload
    from mttp.study.sizing import size as sized

    if content and no_content:
        raise typer.BadParameter("--content and --no-content can't be combined")
    if profile != "collector" and to != "collector":
        raise typer.BadParameter("--profile needs --to collector: files keep everything")
    has_content = content or (to != "collector" and not no_content)
    workload = Workload(
        workers=workers,
        steps=steps,
        rate=rate,
        tokens=tokens,
        logprobs=not no_logprobs,
        characters=characters,
        calls=calls,
        content=has_content,
        token_ids=has_content or token_ids,
    )
    found = sized(workload, to=to, profile=profile, days=days, episodes=episodes)
    if json:
        print_json(document(found))
    else:
        console().print(render(found))

"""`mttp gate`: whether a candidate may be promoted, by rules."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.files import beside, late_facts, write_whole
from mttp.cli.output import Json, Markdown, fail, print_json, print_page, progress, say
from mttp.errors import ConfigureError, MttpError

if TYPE_CHECKING:
    from mttp.study import GateResult

__all__ = ["gate"]

_RULES = "promotion.yaml"


class Setting(str, Enum):
    """What is gated, which decides the example rules."""

    ENV = "env"
    LLM = "llm"
    EVAL = "eval"


def gate(
    candidate: Annotated[
        str, typer.Argument(metavar="[CANDIDATE]", help="The recording to judge.", show_default=False)
    ] = "",
    *,
    rules: Annotated[
        Path, typer.Option("--rules", metavar="FILE", help="Promotion rules, YAML or JSON.")
    ] = Path(_RULES),
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="BASE", help="The recording that rules compare with."),
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented file of rules to --rules, and judge nothing.")
    ] = False,
    for_: Annotated[
        Setting,
        typer.Option(
            "--for",
            help="What --init writes rules for: an environment, a language model, or an evaluation.",
            show_choices=False,
        ),
    ] = Setting.LLM,
    record: Annotated[
        bool,
        typer.Option("--record", help="Write the verdict into the candidate's recording, as a late fact."),
    ] = False,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Exit with 0 also if the verdict is inconclusive.")
    ] = False,
    strict: Annotated[  # noqa: ARG001 - it was an option before it became the default
        bool, typer.Option("--strict", hidden=True, help="The default.")
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Also write JUnit XML, a test case per rule."),
    ] = None,
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="Also print annotations of GitHub Actions, and append Markdown to $GITHUB_STEP_SUMMARY.",
        ),
    ] = False,
) -> None:
    """
    Decide by rules whether a candidate may be promoted.

    A rule passes if its one-sided confidence bound is on the right side of the limit, fails if the opposite
    bound is on the wrong side, and is inconclusive in between. What is missing counts against it.
    One failed rule rejects the candidate.

    \b
    Examples:
      mttp gate --init --for env
      mttp gate runs/new.jsonl --rules promotion.yaml
      mttp gate runs/new.jsonl --baseline runs/base.jsonl --junit gate.xml

    \b
    Exit codes:
      0  Everything is fine: promote, or inconclusive with --lenient.
      1  A rule failed: reject.
      2  The verdict is inconclusive.
      3  No verdict: wrong usage, sides that differ, input that can't be read.
    """
    if init:
        _init(rules, for_)
        return
    if not candidate:
        raise ConfigureError("name the recording to judge: mttp gate CANDIDATE")
    from mttp.pages.blocks import note
    from mttp.pages.ci import gate_junit, refusal_command, refusal_junit, workflow_commands
    from mttp.pages.markdown import markdown as as_markdown
    from mttp.pages.study import gate_headline, gate_page
    from mttp.study import gate as gated

    target = beside(Path(candidate)) if record else None
    try:
        with progress([candidate, *([baseline] if baseline else [])]) as advance:
            result = gated(candidate, rules=rules, baseline=baseline, progress=advance)
    except MttpError as error:  # the exit code is 3
        refusal = [note("no verdict", "bad"), note(str(error))]
        if json:
            print_json(
                {"verdict": "none", "reason": str(error), "candidate": candidate, "baseline": baseline}
            )
        elif markdown:
            print_page(refusal, markdown=True)
        if junit is not None:
            junit.write_bytes(refusal_junit(str(error)))
        if github:
            _to_github(as_markdown(refusal), [refusal_command(str(error))])
        raise
    if json:
        print_json(result.to_dict())
    else:
        print_page(gate_page(result), markdown=markdown)
    if junit is not None:
        junit.write_bytes(gate_junit(result, strict=not lenient))
    if github:
        _to_github(as_markdown(gate_page(result)), workflow_commands(result, strict=not lenient))
    if target is not None:
        _write_verdict(Path(candidate), result, target)
        say(f"wrote the verdict to {target}", error=True)
    if result.verdict == "inconclusive":
        say(f"mttp: {'warning: ' if lenient else ''}{gate_headline(result)}", error=True)
        if not lenient:
            raise typer.Exit(2)
    fail([gate_headline(result)] if result.verdict == "reject" else [])


def _init(path: Path, setting: Setting) -> None:
    from mttp.study.rule_templates import TEMPLATES

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATES[setting.value])
    except FileExistsError as error:
        raise ConfigureError(f"{path} exists already; name another file by --rules") from error
    say(f"wrote {path}")


def _write_verdict(path: Path, result: GateResult, target: Path) -> None:
    """Write the verdict to a new file, as a fact about the last episode of the candidate."""
    from mttp.model.episodes import Annotation
    from mttp.pages.study import gate_evidence
    from mttp.reading import labels
    from mttp.reading.scanning import Scan
    from mttp.tables.summary import VERDICT_KEY, VERDICT_SOURCE

    fact = Annotation(
        kind="fact",
        key=VERDICT_KEY,
        value=result.verdict,
        episode=result.candidate_identity.last_episode,
        by=VERDICT_SOURCE,
        explanation=gate_evidence(result),
    )
    known = labels.known(Scan(path, arrays=False), [fact])
    write_whole(target, list(late_facts([known.resolve(fact)], known)))


def _to_github(summary: str, commands: Iterable[str]) -> None:
    """Write to the files and streams that GitHub Actions reads."""
    for line in commands:
        say(line, error=True)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{summary}\n")

"""The command line: what is asked, what is printed, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tool import schema_file
from tool.checks import check
from tool.generate import generate
from tool.load import UnusableInput, build, read

__all__ = ["main"]

REGISTRY = Path(__file__).resolve().parents[1]
ROOT = REGISTRY.parent

FINE, WRONG, UNUSABLE = 0, 1, 2
COMMAND = "python semconv/tool"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the registry, then write what is derived from it, or with `--check` compare."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Check the registry; write what is derived from it."
    )
    parser.add_argument("--check", action="store_true", help="compare with what is there instead of writing")
    options = parser.parse_args(arguments)
    try:
        return _run(compare=options.check)
    except UnusableInput as error:
        print(error, file=sys.stderr)
        return UNUSABLE


def _run(*, compare: bool) -> int:
    documents = read(REGISTRY)
    findings = check(documents)
    if findings:
        print(*findings, sep="\n")
        return WRONG
    registry = build(documents)
    earlier = schema_file.previous(REGISTRY / "schemas", version=registry.version)
    published = schema_file.published(REGISTRY / "schemas", version=registry.version)
    texts = generate(registry, earlier=earlier, published=published)
    return _compare(texts) if compare else _write(texts)


def _compare(texts: Mapping[str, str]) -> int:
    stale = [path for path, text in texts.items() if _present(ROOT / path) != text]
    for path in stale:
        print(f"{path}: differs from the registry; run `{COMMAND}` and commit the result")
    return WRONG if stale else FINE


def _write(texts: Mapping[str, str]) -> int:
    for path, text in texts.items():
        if _present(ROOT / path) != text:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8", newline="\n")
            print(f"{path}: written")
    return FINE


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None

"""`mttp size` prints what recording takes, for people and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mttp.cli.app import app
from mttp.cli.rendering.sizes import byte_text

PAGE = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text()


def ran(*arguments: str, columns: int = 80) -> tuple[int, str]:
    """The exit code and what is printed."""
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["size", *arguments], prog_name="mttp")
    return done.exit_code, done.output


def document(*arguments: str) -> dict[str, Any]:
    """The JSON document."""
    code, printed = ran(*arguments, "--json")

    assert 0 == code, printed
    found: dict[str, Any] = json.loads(printed)
    return found


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (999.7, "1 KB"),
        (1000, "1 KB"),
        (999_499, "999 KB"),
        (999_999, "1 MB"),
        (1_234_567, "1.23 MB"),
        (2e9, "2 GB"),
        (3.5e12, "3.5 TB"),
        (4e15, "4 PB"),
        (5e18, "5 EB"),
        (5e24, "5,000,000 EB"),
    ],
)
def test_bytes_have_the_largest_unit_of_which_there_is_one(count: float, text: str) -> None:
    """
    In powers of 1,000, with three digits.
    """
    assert text == byte_text(count)


def test_a_million_workers_with_a_million_steps_a_second_are_computed() -> None:
    """
    The table stays readable: no line of it is longer than 80 columns.
    """
    huge = ["--workers", "1000000", "--rate", "1e6", "--steps", "1e6", "--tokens", "1e6"]
    for to in (["file"], ["collector", "--profile", "tempo"]):
        code, printed = ran(*huge, "--to", *to)
        tables = [line for line in printed.splitlines() if not line.startswith(("1,000", "source", "note"))]

        assert 0 == code, printed
        assert max(map(len, tables)) <= 80
        assert " EB" in printed or " TB/s" in printed
        assert not re.search("inf|nan", printed)


def test_a_collector_has_requests_and_a_file_has_forms() -> None:
    """
    What the one has, the other has not.
    """
    file, collector = document("--to", "zstd"), document("--to", "collector", "--profile", "tempo")

    assert ({"file", "gzip", "zstd", "parquet"}, None) == (set(file["kept"]), file["collector"])
    assert file["bytes_per_second"] == file["kept"]["zstd"]["bytes_per_second"]
    assert ({}, "tempo") == (collector["kept"], collector["profile"])
    assert 0 < collector["gzip_bytes_per_second"] < collector["bytes_per_second"]
    assert 1 == collector["collector"]["tempo_distributors"]


@pytest.mark.parametrize(
    ("arguments", "content", "token_ids"),
    [
        ((), True, True),
        (("--no-content",), False, False),
        (("--no-content", "--token-ids"), False, True),
        (("--to", "collector"), False, False),
        (("--to", "collector", "--token-ids"), False, True),
        (("--to", "collector", "--content"), True, True),
    ],
)
def test_content_is_what_the_transport_has_by_default(
    arguments: tuple[str, ...], content: bool, token_ids: bool
) -> None:
    """
    Files have it, collectors do not, unless it is said; token ids go with it.
    """
    workload = document(*arguments)["workload"]

    assert (content, token_ids) == (workload["content"], workload["token_ids"])


def test_no_tokens_are_no_tokens() -> None:
    """
    Neither in the headline nor in bytes; log probabilities alone are less than with ids.
    """
    _, printed = ran("--tokens", "0")
    none, some, bare = document("--tokens", "0"), document(), document("--no-logprobs")

    assert "token" not in printed.splitlines()[0]
    assert none["bytes_per_second"] < bare["bytes_per_second"] < some["bytes_per_second"]


def test_more_episodes_than_are_played_in_the_days_are_not_all_kept() -> None:
    """
    The headline says of how long a time they are, and the sizes are of that time.
    """
    _, printed = ran("--episodes", "1e6", "--days", "1")
    found = document("--episodes", "1e6", "--days", "1")
    rate, kept = found["kept"]["file"]["bytes_per_second"], found["kept"]["file"]["bytes_kept"]

    assert "1,000,000 episodes, recorded in 92.6 d; those of 1 d are kept" in printed
    assert 86_400 == found["kept_seconds"]
    assert rate * 86_400 == pytest.approx(kept, rel=1e-3)
    assert "are kept" not in ran("--episodes", "10")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "greater than or equal to 1"),
        (["--workers", "-3"], "greater than or equal to 1"),
        (["--workers", "1.5"], "Input should be a valid integer"),
        (["--workers", "٣x"], "Input should be a valid integer"),
        (["--steps", "0"], "steps is 0.0; it must be a number from 1 to 1e+12"),
        (["--rate", "-1"], "rate is -1.0"),
        (["--rate", "nan"], "rate is nan"),
        (["--tokens", "inf"], "tokens is inf"),
        (["--workers", "9" * 30], "workers is 9999"),
        (["--days", "0"], "days is 0.0"),
        (["--episodes", "-1"], "episodes is -1.0"),
        (["--to", "tape 📼"], "'tape 📼' is not one of file, gzip, zstd, collector"),
        (["--to", "collector", "--profile", "jäger"], "unknown profile 'jäger'"),
        (["--profile", "jaeger"], "--profile needs --to collector"),
        (["--to", "zstd", "--profile", "nowhere"], "--profile needs --to collector"),
        (["--content", "--no-content"], "--content and --no-content can't be combined"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str) -> None:
    """
    With a sentence that has the value.
    """
    code, printed = ran(*arguments)

    assert (2, True) == (code, message in " ".join(printed.replace("│", " ").split())), printed


def test_the_page_shows_what_the_command_prints() -> None:
    """
    Its tables too are those of the measured sizes.
    """
    from mttp.study.sizing.measured import BYTES, TOLERANCE

    shown = re.findall(r"^```console\n\$ mttp size (.*)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)

    assert 2 == len(shown)
    for arguments, text in shown:
        printed = ran(*arguments.split(), columns=160)[1]
        assert text.split("\n") == [line.rstrip() for line in printed.split("\n")]
    for form in ("file", "zstd", "parquet", "otlp", "otlp_gzip"):
        assert f"{BYTES[form].token_ids:.3g}" in PAGE
    assert " | ".join(f"{error:.0%}" for error in TOLERANCE.values()) in PAGE

"""`mttp doctor` names what is wrong with a set-up, and what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.cli.doctor.checks import FEW_BYTES, OWN
from mttp.testing import Behaviour, OtlpReceiver

SECRET = "sk-do-not-show-me"
SOURCE = Path(mttp.__file__).parent


def ran(*arguments: str) -> tuple[int, str]:
    """The exit code and what is printed in a terminal of 80 columns."""
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["doctor", *arguments], prog_name="mttp")
    return done.exit_code, done.output


def found(*arguments: str) -> list[dict[str, str]]:
    """The checks of the JSON document, whose exit code agrees with its errors."""
    code, printed = ran(*arguments, "--json")
    document: dict[str, Any] = json.loads(printed)
    statuses = [check["status"] for check in document["checks"]]

    assert (document["errors"], document["warnings"]) == (statuses.count("error"), statuses.count("warning"))
    assert code == int(document["errors"] > 0)
    checks: list[dict[str, str]] = document["checks"]
    return checks


def wrong(*arguments: str) -> list[tuple[str, str, str, str]]:
    """What is not ok."""
    return [
        (check["check"], check["status"], check["found"], check["advice"])
        for check in found(*arguments)
        if check["status"] != "ok"
    ]


def closed_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as opened:
        yield opened


def test_a_good_set_up_has_nothing_wrong_and_leaves_nothing_behind() -> None:
    """
    Without a transport the default is checked; no file and no folder is made.
    """
    code, printed = ran()

    assert 0 == code
    assert "nothing is wrong" in printed
    assert "mttp-runswillbemade" in "".join(printed.split())
    assert [] == list(Path().iterdir())


def test_each_advice_is_below_its_row_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each row begins with its status.
    """
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MTTP_CONTENT", "perhaps")
    code, printed = ran()
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in printed.splitlines()]

    assert 1 == code
    assert 80 >= max(map(len, lines))
    row = next(place for place, line in enumerate(lines) if "MTTP_CONTENT=perhaps" in line)
    assert lines[row].startswith("error")
    assert any("advice correct MTTP_CONTENT, or unset it" in line for line in lines[row : row + 3])
    assert "1 error" in lines[-2:]


# Versions.


def test_a_dependency_outside_its_bounds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With the requirement that pip takes.
    """
    versions = {"wrapt": "1.2", "gymnasium": "0.29", "typer": "0.1"}
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or real(name))
    problems = {check: (status, text, advice) for check, status, text, advice in wrong()}

    status, text, advice = problems["wrapt"]
    assert ("error", True) == (status, text.startswith("1.2 is outside "))
    assert re.fullmatch(r"pip install 'wrapt.*>=1\.16.*'", advice)
    assert ("warning", "typer 0.1 is outside >=0.26", "pip install 'mttp[cli]'") == problems["extra cli"]
    status, text, advice = problems["library"]
    assert ("warning", "gymnasium 0.29 is outside >=1.1") == (status, text)
    assert "pip install 'gymnasium>=1.1'" in advice


def test_a_missing_dependency_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An extra that lacks a package counts as not installed.
    """
    real = metadata.version

    def version(name: str) -> str:
        if name in ("wrapt", "scipy"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    rows = found()
    (missing,) = [row for row in rows if row["check"] == "wrapt"]
    (extras,) = [row for row in rows if row["found"].startswith("not installed: agreement")]

    assert ("error", "not installed") == (missing["status"], missing["found"])
    assert {"study", "view", "plot"} <= set(extras["found"].partition(": ")[2].split(", "))


# Variables.


def test_every_variable_of_mttp_is_known() -> None:
    """
    A variable that the source names is in the table.
    """
    named = {
        name for path in SOURCE.rglob("*.py") for name in re.findall(r'"(MTTP_[A-Z_]+)"', path.read_text())
    }

    assert named == set(OWN)


@pytest.mark.parametrize(
    ("name", "value", "status", "says"),
    [
        ("MTTP_CONTENT", "perhaps", "error", "expected true or false"),
        ("MTTP_HELPER", "maybe", "error", "expected one of on, off"),
        ("MTTP_TRUST", "not a module", "error", "is not a module name"),
        ("MTTP_SECRET_KEYS", "!!", "error", "is not a list of names"),
        ("MTTP_TRANSPROT", "memory://", "warning", "did you mean MTTP_TRANSPORT?"),
        ("MTTP_ZZZZZZZZZZZZ", "1", "warning", "known are MTTP_CONTENT"),
        ("OTEL_EXPORTER_OTLP_ENDPIONT", "x", "warning", "did you mean OTEL_EXPORTER_OTLP_ENDPOINT?"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "error", "expected a number of seconds"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "lzma", "error", "expected one of none, gzip, deflate"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "error", "expected one of http/protobuf, grpc"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/none.pem", "error", "can't read the file"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "error", "expected one of always_on"),
        ("OTEL_SDK_DISABLED", "true", "warning", "nothing is recorded"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many", "error", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
    ],
)
def test_a_wrong_variable_is_named(
    name: str, value: str, status: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Once, whichever it is.
    """
    monkeypatch.setenv(name, value)
    ((_, got, text, advice),) = wrong("--transport", "memory://")

    assert status == got
    assert name in text
    assert says in f"{text} {advice}"


@pytest.mark.parametrize("arguments", [["doctor", "--json"], ["demo"], ["push", "a.jsonl"]])
def test_a_limit_with_which_opentelemetry_can_not_be_imported_is_named(arguments: list[str]) -> None:
    """
    In a process of its own, which imports it with this value: a sentence, and no traceback.
    """
    done = subprocess.run(
        [sys.executable, "-m", "mttp", *arguments],
        env={**os.environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == (1 if "doctor" in arguments else 2)
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be" in done.stdout + done.stderr
    assert "correct the variable, or unset it" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if "doctor" in arguments:
        assert 1 == json.loads(done.stdout)["errors"]


def test_configuring_with_such_a_limit_is_an_error_of_configuration() -> None:
    """
    As with the limits that are read later.
    """
    program = "import mttp\ntry: mttp.configure\nexcept mttp.errors.ConfigureError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "but got many; correct the variable, or unset it" in done.stdout


def test_a_wrong_ratio_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The sampler's argument depends on the sampler.
    """
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "7")
    ((_, status, text, _),) = wrong()

    assert ("error", True) == (status, "OTEL_TRACES_SAMPLER_ARG='7' is not a number from 0 to 1" in text)


def test_values_of_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Not those of headers, of addresses, of resources, nor of unknown variables; nor where they are wrong.
    """
    for name, value in {
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {SECRET},x-team=a",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"no equals {SECRET}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://user:{SECRET}@localhost:1",
        "OTEL_RESOURCE_ATTRIBUTES": f"api_key={SECRET},team=a",
        "MTTP_TRANSPORT": f"http://localhost:1/?headers=a={SECRET},https://me:{SECRET}@localhost:2",
        "MTTP_API_KEY": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    for arguments in ((), ("--json",), ("--transport", f"http://user:{SECRET}@localhost:1")):
        _, printed = ran(*arguments)

        assert SECRET not in printed
        assert "authorization=[redacted],x-team=[redacted]" in re.sub(r"\s", "", printed)


# Transports.


def test_the_transports_of_the_environment_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Several addresses, and OpenTelemetry's variables where mttp's own is not set.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    assert "http://localhost:4318/v1/traces" in [row["found"] for row in found()]

    monkeypatch.setenv("MTTP_TRANSPORT", "memory://,file://runs/")
    listed = [row["found"] for row in found() if row["check"] == "transport"]

    assert ["memory://", "file://runs/"] == listed


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("runs/a.jsonl", "has no scheme"),
        ("htp://localhost:4318", "did you mean 'http://'"),
        ("file://runs/?max_bytes=many", "expected a size"),
        ("grpc://localhost", "write grpc://localhost:4317"),
        ("wandb://", "write wandb://PROJECT"),
    ],
)
def test_a_wrong_address_is_named(url: str, says: str) -> None:
    """
    With what to write instead.
    """
    ((check, status, text, _),) = wrong("--transport", url)

    assert ("transport", "error") == (check, status)
    assert says in text


def test_a_selection_of_no_exporter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nothing would be recorded.
    """
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    ((check, status, text, _),) = wrong()

    assert ("transport", "error", True) == (check, status, "nothing is recorded" in text)


def test_a_folder_below_a_file_is_an_error() -> None:
    """
    It can't be made.
    """
    Path("taken").write_text("")
    problems = wrong("--transport", "file://taken/runs/")

    assert ("folder", "error") == problems[0][:2]
    assert "can't write to" in problems[0][2]


def test_an_unwritable_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Root may write to any folder, but not to /proc.
    """
    Path("locked").mkdir(mode=0o500)
    address = "file:///proc/runs/" if os.geteuid() == 0 else "file://locked/"
    ((_, status, text, advice),) = (row for row in wrong("--transport", address) if row[0] == "folder")

    assert ("error", True) == (status, "can't write to" in text)
    assert "choose another place" in advice


def test_an_existing_file_is_left_as_it_was() -> None:
    """
    It is opened for appending, and not changed.
    """
    Path("a.jsonl").write_text("{}\n")

    assert [] == wrong("--transport", "file://a.jsonl")
    assert "{}\n" == Path("a.jsonl").read_text()


@pytest.mark.parametrize(("free", "status"), [(FEW_BYTES - 1, "warning"), (FEW_BYTES, "ok")])
def test_little_free_disk_is_named(free: int, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A training that fills it loses spans.
    """
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12 - free, free))
    (row,) = [row for row in found("--transport", "file://runs/") if row["check"] == "disk"]

    assert status == row["status"]
    assert "are free on the disk" in row["found"]


# Endpoints.


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_receiver_takes_an_empty_request(scheme: str, receiver: OtlpReceiver) -> None:
    """
    It records no span.
    """
    address = receiver.http_address if scheme == "http" else receiver.grpc_address
    rows = {row["check"]: row for row in found("--transport", address)}

    assert {"ok"} == {row["status"] for row in rows.values()}
    assert "accepted an empty request" in rows["request"]["found"]
    assert [] == list(receiver.records())


@pytest.mark.parametrize("scheme", ["http", "grpc", "mttp+http"])
def test_a_closed_port_is_named(scheme: str) -> None:
    """
    With what to look at.
    """
    port = closed_port()
    ((check, status, text, advice),) = wrong("--transport", f"{scheme}://127.0.0.1:{port}")

    assert ("connection" if scheme == "mttp+http" else "request", "error") == (check, status)
    assert f"127.0.0.1:{port}" in text
    assert "refused" in text.lower()
    assert "receiver" in advice


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_tls_to_a_port_without_it_is_named(scheme: str, receiver: OtlpReceiver) -> None:
    """
    The advice is about TLS.
    """
    port = receiver.http_address.partition("://")[2].partition("/")[0].rpartition(":")[2]
    ((check, status, text, advice),) = wrong("--transport", f"{scheme}://127.0.0.1:{port}")

    assert ("request", "error") == (check, status)
    assert "TLS" in f"{text} {advice}"


def test_a_silent_endpoint_is_named_in_time() -> None:
    """
    It takes connections and answers nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ((check, status, text, _),) = wrong(
            "--transport", f"http://127.0.0.1:{port}/v1/traces", "--timeout", "0.2"
        )

    assert ("request", "error") == (check, status)
    assert "no answer within 0.2 seconds" in text


def test_a_receiver_that_refuses_is_named(receiver: OtlpReceiver) -> None:
    """
    With its answer, and advice.
    """
    receiver.behave(Behaviour(status=401, message="who are you?"), forever=True)
    ((check, status, text, advice),) = wrong("--transport", receiver.http_address)

    assert ("request", "error") == (check, status)
    assert "401" in text + advice
    assert "header" in text + advice


# The encoding process, and the checks themselves.


def test_a_spool_is_checked_and_not_created(receiver: OtlpReceiver, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    address = f"{receiver.http_address}?spool={spool}"
    assert [] == [one for one in wrong("--transport", address) if one[0] in ("folder", "spool", "transport")]
    assert [f"{tmp_path} can be written; {spool} will be made"] == [
        one["found"] for one in found("--transport", address) if one["check"] == "folder"
    ]
    assert not spool.exists()


@pytest.mark.parametrize("given", ["spool=", "spool=x&spool_bytes=none"])
def test_a_wrong_option_of_a_spool_is_named(given: str) -> None:
    address = f"http://localhost:4318?{given}"
    (named,) = [one for one in wrong("--transport", address) if one[0] == "transport"]
    assert "error" == named[1]
    assert "spool" in named[2]

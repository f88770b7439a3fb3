"""Checks of the environment variables that mttp reads; values of secrets are not shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from opentelemetry.sdk import environment_variables as sdk_variables

from mttp.cli.doctor.findings import SetupFinding, error, ok, warning
from mttp.codec import secrets
from mttp.errors import ConfigureError, MttpError
from mttp.otlp.encoding.encoder import HELPER_VARIABLE
from mttp.recording import provider
from mttp.recording.configuration import (
    CONTENT_VARIABLE,
    RUN_ID_VARIABLE,
    TRANSPORT_VARIABLE,
    addresses,
    is_off,
)
from mttp.rewards import trust
from mttp.transports import sampling
from mttp.transports.options import flag, one_of
from mttp.transports.otlp.settings import VARIABLES, parse_variable

__all__ = ["OWN", "otel_variables", "own_variables", "shown"]

_OTLP = ("OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_")
_FLAG = one_of("true", "false")
_SAMPLERS = one_of(
    *(
        f"{start}{name}"
        for start in ("", "parentbased_")
        for name in ("always_on", "always_off", "traceidratio")
    )
)

OWN: Mapping[str, Callable[[str], object]] = {
    TRANSPORT_VARIABLE: str,  # the check of transports opens it
    RUN_ID_VARIABLE: str,
    CONTENT_VARIABLE: flag,
    secrets.VARIABLE: lambda _: secrets.Secrets.stated(None),
    HELPER_VARIABLE: one_of("on", "off", "true", "false", "1", "0"),
    trust.VARIABLE: lambda _: trust.Trust.of(False, None),
}
"""The variables of mttp, each with what raises an exception for an invalid value."""

_OTEL: Mapping[str, Callable[[str], object]] = {
    "OTEL_SDK_DISABLED": _FLAG,
    "OTEL_TRACES_EXPORTER": str,  # the check of transports opens it
    "OTEL_TRACES_SAMPLER": _SAMPLERS,
    "OTEL_TRACES_SAMPLER_ARG": lambda _: sampling.from_environment(),
    "OTEL_SERVICE_NAME": str,
    "OTEL_RESOURCE_ATTRIBUTES": str,
    **{f"{start}ENDPOINT": str for start in _OTLP},
    **{f"{start}INSECURE": _FLAG for start in _OTLP},
    **{f"{start}PROTOCOL": one_of("http/protobuf", "grpc") for start in _OTLP},
}


def own_variables() -> Iterator[SetupFinding]:
    """List the variables of mttp that are set: valid, invalid, or unknown."""
    for name in sorted(name for name in os.environ if name.startswith("MTTP_")):
        if name in OWN:
            yield _finding(name, OWN[name])
        else:
            yield warning("variable", f"mttp reads no variable {name}", _suggestion(name, OWN))


def otel_variables() -> Iterator[SetupFinding]:
    """List the variables of OpenTelemetry that mttp reads, and those whose names are almost known."""
    options = {f"{start}{option.upper()}": option for start in _OTLP for option in VARIABLES}
    known = {*options, *_OTEL, *_of_sdk()}
    for name in sorted(name for name in os.environ if name.startswith("OTEL_")):
        if name in options:
            yield _finding(name, lambda value, name=name: parse_variable(options[name], value, name))  # type: ignore[misc]
        elif name in _OTEL:
            yield _finding(name, _OTEL[name])
        elif name not in known and get_close_matches(name, known, cutoff=0.9):
            yield warning("variable", f"OpenTelemetry has no variable {name}", _suggestion(name, known))
    yield from _limits()
    if is_off():
        yield warning("variable", "OTEL_SDK_DISABLED=true: nothing is recorded", "unset OTEL_SDK_DISABLED")


def _limits() -> Iterator[SetupFinding]:
    try:
        provider.check()
    except ConfigureError as wrong:
        yield error("variable", str(wrong.__cause__), "correct the variable, or unset it")


def _of_sdk() -> set[str]:
    """Return the names of variables that OpenTelemetry's SDK declares."""
    return {name for name in vars(sdk_variables) if name.startswith("OTEL_")}


def _suggestion(name: str, known: Mapping[str, object] | set[str]) -> str:
    nearest = get_close_matches(name, sorted(known), n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"unset it; known are {', '.join(sorted(known))}"


def _finding(name: str, check: Callable[[str], object]) -> SetupFinding:
    """Return whether a variable's value is valid; an empty one is as if it were not set."""
    value = os.environ[name].strip()
    if not value:
        return ok("variable", f"{name} is empty")
    try:
        check(value)
    except (MttpError, ValueError) as wrong:
        return error("variable", _named(name, value, wrong), f"correct {name}, or unset it")
    return ok("variable", f"{name}={shown(name, value)}")


def _named(name: str, value: str, wrong: Exception) -> str:
    """Return an error message that starts with the variable."""
    return str(wrong) if name in str(wrong) else f"{name}={shown(name, value)}: {wrong}"


def shown(name: str, value: str) -> str:
    """Return the value of a variable without secrets: of headers, only the names."""
    if name.endswith("_HEADERS"):
        pairs = [pair.partition("=")[0].strip() for pair in value.split(",")]
        return ",".join(f"{header}={secrets.REDACTED}" for header in pairs)
    if name == secrets.VARIABLE:
        return value  # names
    if "://" in value:
        return ",".join(map(secrets.without_secrets, addresses(value)))
    return str(secrets.USUAL.hide(name, value, []))

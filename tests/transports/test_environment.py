"""OpenTelemetry's own variables ask for transports, and say how they are to send."""

from __future__ import annotations

import re
from typing import cast

import pytest
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from mttp import transports
from mttp.errors import TransportError
from mttp.transports.environment import from_environment
from mttp.transports.otlp import OtlpTransport

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
INSECURE = "OTEL_EXPORTER_OTLP_INSECURE"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
EXPORTER = "OTEL_TRACES_EXPORTER"


def set_to(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set these."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("variables", [{}, {EXPORTER: ""}, {EXPORTER: " ", ENDPOINT: ""}, {PROTOCOL: "grpc"}])
def test_without_an_exporter_or_an_endpoint_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """
    An empty variable is the same as none.
    """
    set_to(monkeypatch, variables)

    assert from_environment() is None


@pytest.mark.parametrize("name", ["none", "None", " none "])
def test_none_is_no_transport_whatever_else_is_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """
    Which is not the same as saying nothing.
    """
    set_to(monkeypatch, {EXPORTER: name, ENDPOINT: "http://host:4318"})

    assert [] == from_environment()


@pytest.mark.parametrize(
    ("variables", "urls"),
    [
        ({EXPORTER: "otlp"}, ["grpc://localhost:4317"]),
        ({EXPORTER: "otlp", PROTOCOL: "http/protobuf"}, ["http://localhost:4318/v1/traces"]),
        ({EXPORTER: "otlp_proto_http"}, ["http://localhost:4318/v1/traces"]),
        ({EXPORTER: "otlp_proto_grpc", PROTOCOL: "http/protobuf"}, ["grpc://localhost:4317"]),
        ({ENDPOINT: "http://host:4318"}, ["http://host:4318/v1/traces"]),
        ({ENDPOINT: "http://host:4318/"}, ["http://host:4318/v1/traces"]),
        ({ENDPOINT: "https://host/otlp"}, ["https://host/otlp/v1/traces"]),
        ({ENDPOINT: "http://host:4317"}, ["grpc://host:4317"]),
        ({ENDPOINT: "http://host:4317/"}, ["grpc://host:4317"]),
        ({ENDPOINT: "https://host:4317"}, ["grpcs://host:4317"]),
        ({ENDPOINT: "https://host"}, ["grpcs://host:443"]),
        ({ENDPOINT: "host:4317"}, ["grpcs://host:4317"]),
        ({ENDPOINT: "host:4317", INSECURE: "true"}, ["grpc://host:4317"]),
        ({ENDPOINT: "http://host:4317", INSECURE: "false"}, ["grpcs://host:4317"]),
        ({ENDPOINT: "https://host:4317", INSECURE: "true"}, ["grpcs://host:4317"]),
        ({ENDPOINT: "http://host:9999", PROTOCOL: "http/protobuf"}, ["http://host:9999/v1/traces"]),
        ({ENDPOINT: "http://host:4318", PROTOCOL: "grpc"}, ["grpc://host:4318"]),
        ({TRACES_ENDPOINT: "http://host:4318/here"}, ["http://host:4318/here"]),
        ({TRACES_ENDPOINT: "http://host:4318"}, ["http://host:4318"]),
        ({TRACES_ENDPOINT: "http://a:4318/x", ENDPOINT: "http://b:4318"}, ["http://a:4318/x"]),
        (
            {
                ENDPOINT: "http://b:4318",
                PROTOCOL: "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            ["http://b:4318/v1/traces"],
        ),
        ({EXPORTER: "otlp_proto_http, otlp"}, ["http://localhost:4318/v1/traces", "grpc://localhost:4317"]),
    ],
)
def test_variables_name_a_receiver(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], urls: list[str]
) -> None:
    """
    The protocol's variable wins; without it a port of 4318 or a path means HTTP, and gRPC is the default.
    """
    set_to(monkeypatch, variables)

    assert urls == [repr(opened) for opened in from_environment() or ()]


def test_other_exporters_are_found_where_they_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The SDK's own for the console is one of them; several are separated by commas.
    """
    set_to(monkeypatch, {EXPORTER: "console,otlp"})

    console, otlp = from_environment() or ()

    assert (ConsoleSpanExporter, OtlpTransport) == (type(console), type(otlp))


@pytest.mark.parametrize(
    ("variables", "advice"),
    [
        ({EXPORTER: "jaeger"}, "OTEL_TRACES_EXPORTER names 'jaeger'; known are .*console, none, otlp"),
        ({EXPORTER: "otlp,none"}, "OTEL_TRACES_EXPORTER names 'none'; known are"),
        (
            {EXPORTER: "otlp", PROTOCOL: "http/json"},
            f"{PROTOCOL}='http/json': expected one of http/protobuf, grpc",
        ),
        ({ENDPOINT: "host:4318", PROTOCOL: "http/protobuf"}, f"{ENDPOINT}='host:4318': expected http://HOST"),
        ({ENDPOINT: "http://host:no"}, f"{ENDPOINT}='http://host:no': .*; write http://HOST:PORT"),
        (
            {ENDPOINT: "http://host:4317/x", PROTOCOL: "grpc"},
            f"{ENDPOINT}=.*: a gRPC address has a host and a port",
        ),
        (
            {EXPORTER: "otlp", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "soon"},
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT='soon': expected a number of seconds above zero",
        ),
        (
            {EXPORTER: "otlp", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"},
            "OTEL_EXPORTER_OTLP_COMPRESSION='zip': expected one of none, gzip, deflate",
        ),
        ({EXPORTER: "otpl"}, "OTEL_TRACES_EXPORTER names 'otpl'; did you mean 'otlp'"),
        ({ENDPOINT: "http://me:hunter2@h"}, rf"{ENDPOINT}='http://\[redacted\]@h': an address can't contain"),
        ({EXPORTER: "otlp", HEADERS: "a=b,hunter2"}, f"{HEADERS}: expected name=value, separated by commas"),
        ({EXPORTER: "otlp", HEADERS: "a%20b=hunter2"}, f"{HEADERS}: 'a b' is not a valid header name"),
        (
            {EXPORTER: "otlp", "OTEL_EXPORTER_OTLP_CERTIFICATE": "missing.pem"},
            "OTEL_EXPORTER_OTLP_CERTIFICATE='missing.pem': can't read the file: No such file or directory",
        ),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With its value, unless that may hold a secret, and with what to write.
    """
    set_to(monkeypatch, variables)

    with pytest.raises(TransportError, match=f"^(OTEL_EXPORTER_OTLP_ENDPOINT=.*)?{advice}") as caught:
        from_environment()

    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caplog.text}"


def test_options_that_are_not_given_follow_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Those for traces before the general ones, and what is given before both.
    """
    set_to(
        monkeypatch,
        {
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "4.5",
            "OTEL_EXPORTER_OTLP_COMPRESSION": " GZIP ",
            HEADERS: "Authorization=Bearer%20x%2C, tenant=a",
        },
    )

    followed = cast(OtlpTransport, transports.open("http://host:4318")).settings
    given = cast(
        OtlpTransport,
        transports.open("grpc://host:4317", timeout=1, compression="none", headers={"tenant": "b"}),
    ).settings

    assert (4.5, "gzip") == (followed.timeout, followed.compression)
    assert {"authorization": "Bearer x,", "tenant": "a"} == followed.headers
    assert (1.0, "none") == (given.timeout, given.compression)
    assert {"authorization": "Bearer x,", "tenant": "b"} == given.headers


def test_a_url_that_no_address_says_is_not_handed_to_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    They inherit the variable that says it.
    """
    monkeypatch.setenv(TRACES_ENDPOINT, "http://host:4318/here")

    (opened,) = cast(list[OtlpTransport], from_environment())

    assert opened.address is None


def test_an_exporter_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With its own words.
    """
    monkeypatch.setenv(EXPORTER, "console")
    monkeypatch.setattr(ConsoleSpanExporter, "__init__", lambda self: 1 / 0)

    with pytest.raises(
        TransportError, match=re.escape("'console', which can't be created: ZeroDivisionError")
    ):
        from_environment()


@pytest.mark.parametrize("query", ["api_key=k3y", "x=1&token=k3y"])
def test_the_query_of_an_endpoint_is_not_shown(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """
    Counters and log lines name a transport by its representation, and a query may hold a key.
    """
    set_to(monkeypatch, {TRACES_ENDPOINT: f"http://host:4318/v1/traces?{query}"})

    (transport,) = from_environment() or []

    assert "http://host:4318/v1/traces" == repr(transport)
    assert f"http://host:4318/v1/traces?{query}" == cast(OtlpTransport, transport).settings.endpoint

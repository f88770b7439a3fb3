"""What an address names, and what is said about one that names nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import mttp
from mttp import transports
from mttp.errors import ConfigureError, TransportError
from mttp.transports.file import FileTransport
from mttp.transports.memory import MemoryTransport
from mttp.transports.otlp import OtlpTransport


def opened_file(url: str) -> FileTransport:
    """The file transport at an address, closed again."""
    transport = cast(FileTransport, transports.open(url))
    transport.shutdown()
    return transport


@pytest.mark.parametrize("url", ["memory://", "memory:", "memory"])
def test_memory_needs_no_more_than_its_name(url: str) -> None:
    """
    The shortest address there is.
    """
    assert isinstance(transports.open(url), MemoryTransport)


def test_memory_may_be_bounded() -> None:
    """
    The option of an address is the argument of the transport.
    """
    transport = cast(MemoryTransport, transports.open("memory://?max_episodes=10"))

    assert 10 == transport.max_episodes


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file://runs/a.jsonl", "runs/a.jsonl"),
        ("file://a.jsonl", "a.jsonl"),
        ("file://./a%20b%3F%25.jsonl", "a b?%.jsonl"),
        ("file://a b.jsonl", "a b.jsonl"),
        ("file://ü/日本.jsonl", "ü/日本.jsonl"),
        ("file://a#b.jsonl", "a#b.jsonl"),
        ("file://a.jsonl?fsync=segment", "a.jsonl"),
    ],
)
def test_a_file_is_named_relative_to_the_working_directory(url: str, path: str, tmp_path: Path) -> None:
    """
    Percent signs escape what an address can't say; the question mark begins the options.
    """
    transport = opened_file(url)

    assert tmp_path / path == transport.path
    assert (tmp_path / path).is_file()


def test_a_file_is_named_absolutely(tmp_path: Path) -> None:
    """
    Three slashes begin an absolute path.
    """
    transport = opened_file(f"file://{tmp_path}/deep/er/a.jsonl")

    assert tmp_path / "deep/er/a.jsonl" == transport.path


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No shell expands it in a configuration file.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert tmp_path / "home/a.jsonl" == opened_file("file://~/a.jsonl").path


@pytest.mark.parametrize("url", ["file://runs/", "file://runs"])
def test_a_directory_ends_in_a_slash_or_is_there(url: str, tmp_path: Path) -> None:
    """
    It holds one file for each process, by host and process id.
    """
    (tmp_path / "runs").mkdir()

    transport = opened_file(url)

    (file,) = (tmp_path / "runs").iterdir()
    assert transport.directory
    assert re.fullmatch(r"[\w-]+-\d+-[0-9a-f]{6}\.jsonl", file.name)


def test_the_files_of_a_directory_may_be_compressed(tmp_path: Path) -> None:
    """
    The option `suffix` says how.
    """
    opened_file("file://runs/?suffix=.jsonl.zst")

    (file,) = (tmp_path / "runs").iterdir()
    assert file.name.endswith(".jsonl.zst")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("runs/a.jsonl", "'runs/a.jsonl' has no scheme; for a file write 'file://runs/a.jsonl'"),
        ("", "'' has no scheme"),
        (
            "s3://bucket/a",
            "unknown scheme 's3'; known are memory://, file://, http://, https://, grpc://, grpcs://",
        ),
        ("://a", "unknown scheme ''"),
        ("FILE://a.jsonl", "unknown scheme 'FILE'"),
        ("file://", "no path; write file://runs/a.jsonl or file://runs/"),
        ("file:///", "no path; write"),
        ("file://?fsync=segment", "no path; write"),
        ("file://a.jsonl?max=3", "unknown option 'max'; known are max_bytes, fsync, suffix"),
        ("file://a.jsonl?max_byte=3", "unknown option 'max_byte'; did you mean 'max_bytes'? known are max_"),
        ("file://a.jsonl?max_bytes=1&max_bytes=2", "option max_bytes is given 2 times; give it once"),
        ("file://a.jsonl?fsync", "option fsync='': expected one of never, segment"),
        ("mttp+stdio://?x=1", "unknown option 'x'; this address has no options"),
        ("htp://h", "unknown scheme 'htp'; did you mean 'http://'? known are memory://"),
        (
            "http://h?profile=tmpo",
            "unknown profile 'tmpo'; did you mean 'tempo'? known are jaeger, collector",
        ),
        ("http://h?url=x", "unknown option 'url'"),
        (
            "http://h?timeout=1e300",
            "option timeout='1e300': expected a number of seconds above zero, at most",
        ),
        ("http://[::1", "Invalid IPv6 URL; write http://HOST:PORT"),
        ("grpc://[::1]", "a gRPC address has a host and a port, and no path; write grpc://[::1]:4317"),
        ("http://h?certificate=~nobody-at-all/x", "can't read the file: Could not determine home directory"),
        ("file://a.jsonl?max_bytes=lots", "option max_bytes='lots': expected a size such as 64MB or 1GiB"),
        ("file://a.jsonl?max_bytes=0", "option max_bytes='0': expected a whole number above zero"),
        ("file://a.jsonl?max_bytes=-5", "option max_bytes='-5': expected a size"),
        ("file://a.jsonl?max_bytes=", "option max_bytes='': expected a size"),
        ("file://a.jsonl?max_bytes=5XB", "option max_bytes='5XB': expected a size"),
        ("file://a.jsonl?fsync=always", "option fsync='always': expected one of never, segment"),
        ("file://runs/?suffix=.txt", "option suffix='.txt': expected one of .jsonl, .jsonl.gz, .jsonl.zst"),
        ("memory://a", "memory:// has no path, but 'a' was given; write memory://"),
        ("memory://?max=3", "unknown option 'max'; known are max_episodes"),
        ("memory://?max_episodes=ten", "option max_episodes='ten': expected a whole number above zero"),
        ("memory://?max_episodes=0", "option max_episodes='0': expected a whole number above zero"),
        ("memory://?max_episodes=1.5", "option max_episodes='1.5': expected a whole number above zero"),
        ("file://occupied/a.jsonl", "can't write occupied/a.jsonl: .* make this one writable"),
        ("file://occupied/", "can't write occupied/: .* choose another place"),
        ("http://", "no host; write http://HOST:PORT"),
        ("http://:4318", "no host; write http://HOST:PORT"),
        ("http://host:port", "write http://HOST:PORT"),
        ("http://host:99999", "write http://HOST:PORT"),
        ("http://host:4318?gzip=1", "unknown option 'gzip'; known are headers, compression, timeout"),
        (
            "http://host:4318?compression=zstd",
            "option compression='zstd': expected one of none, gzip, deflate",
        ),
        ("grpc://host:4317?compression=deflate", "compression=deflate is for HTTP: .* take gzip or none"),
        ("http://host:4318?timeout=0", "option timeout='0': expected a number of seconds above zero"),
        ("http://host:4318?timeout=nan", "option timeout='nan': expected a number of seconds above zero"),
        ("http://host:4318?timeout=10s", "option timeout='10s': expected a number of seconds above zero"),
        ("http://host:4318?max_bytes=65MiB", "option max_bytes='65MiB': expected at most 64MiB"),
        ("https://host?certificate=ca.pem", "option certificate='ca.pem': can't read the file: No such file"),
        ("https://host?certificate=/dev/zero", "can't read the file: it is a device, not a regular file"),
        ("https://host?certificate=occupied", "certificate .*occupied can't be used: .*"),
        ("https://host?client_certificate=occupied", "occupied can't be used as client certificate: .*"),
        ("https://host?client_key=occupied", "client_key is given without client_certificate"),
        ("https://host?certificate=", "option certificate='': expected the path of a file"),
        ("grpc://", "no host; write grpc://HOST:PORT"),
        ("grpc://host", "a gRPC address has a host and a port, and no path; write grpc://host:4317"),
        (
            "grpcs://host:4317/v1/traces",
            "a gRPC address has a host and a port, and no path; write grpcs://host:4317",
        ),
        ("file://a%00b.jsonl", "can't write a\x00b.jsonl: .*embedded null"),
        ("file://" + "n" * 300 + ".jsonl", "can't write n+.jsonl: File name too long"),
    ],
)
def test_a_wrong_address_is_named_and_what_to_write(url: str, advice: str, tmp_path: Path) -> None:
    """
    The error has the address, its fault, and what to write.
    """
    (tmp_path / "occupied").write_text("a file, where the address wants a directory")

    with pytest.raises(TransportError) as caught:
        transports.open(url)

    message = str(caught.value)
    assert message.startswith(f"transport {url!r}")
    assert re.search(advice if ".*" in advice or "+" in advice else re.escape(advice), message)


@pytest.mark.parametrize(
    ("url", "sent_to"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("https://host", "https://host/v1/traces"),
        ("https://host/otlp", "https://host/otlp/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
        ("http://host:4318/v1/traces/", "http://host:4318/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("grpc://host:4317", "host:4317"),
        ("grpcs://[::1]:4317", "[::1]:4317"),
    ],
)
def test_traces_go_below_the_base_url_of_a_receiver(url: str, sent_to: str) -> None:
    """
    As OTLP's rules say; gRPC has no paths.
    """
    assert sent_to == opened_otlp(url).settings.endpoint


@pytest.mark.parametrize(
    "url",
    ["http://h:1?timeout=2.5&compression=gzip", "http://h:1?timeout=%202.5%20&compression=GZIP"],
)
def test_an_option_reads_alike_wherever_it_is_stated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In an address, as an argument, in a variable: blanks around it and upper case change nothing.
    """
    stated = opened_otlp(url).settings
    argued = opened_otlp("http://h:1", timeout=" 2.5", compression="Gzip").settings
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", " 2.5 ")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP")
    told = opened_otlp("http://h:1").settings

    assert [stated, stated] == [argued, told]


def opened_otlp(url: str, **options: object) -> OtlpTransport:
    """The OTLP transport at an address."""
    return cast(OtlpTransport, transports.open(url, **options))


def test_options_are_values_or_text() -> None:
    """
    As arguments they have types, and precede the address's.
    """
    from_text = opened_otlp("http://h:1?timeout=2.5&max_bytes=1MiB&compression=gzip&headers=a=b,C=d")
    from_values = opened_otlp(
        "http://h:1?timeout=9", timeout=2.5, max_bytes=2**20, compression="gzip", headers={"a": "b", "C": "d"}
    )

    assert from_text.settings == from_values.settings
    assert {"a": "b", "c": "d"} == from_text.settings.headers
    file = cast(
        FileTransport, transports.open("file://a.jsonl?max_bytes=7", max_bytes=64_000_000, fsync=None)
    )
    file.shutdown()
    memory = cast(MemoryTransport, transports.open("memory://?max_episodes=3", max_episodes=10))
    assert (64_000_000, 10) == (file._max_bytes, memory.max_episodes)


@pytest.mark.parametrize(
    ("url", "options", "advice"),
    [
        ("file://a.jsonl", {"max": 3}, "unknown option 'max'"),
        ("file://a.jsonl", {"max_bytes": 1.5}, "option max_bytes=1.5: expected a size"),
        ("file://a.jsonl", {"max_bytes": True}, "option max_bytes=True: expected a whole number above zero"),
        ("file://a.jsonl", {"max_bytes": -1}, "option max_bytes=-1: expected a whole number above zero"),
        ("file://a.jsonl", {"fsync": 1}, "option fsync=1: expected one of never, segment"),
        ("memory://", {"max_episodes": 1.0}, "option max_episodes=1.0: expected a whole number above zero"),
        (
            "http://h:1",
            {"timeout": 10**5000},
            "option timeout=<int>: expected a number of seconds above zero",
        ),
        ("memory://", {"max_episodes": 10**5000}, "option max_episodes=<int>: expected a whole number above"),
        ("http://h:1", {"compression": ["gzip"]}, "option compression=['gzip']: expected one of none, gzip"),
        ("http://h:1", {"profile": ["tempo"]}, "unknown profile ['tempo']"),
        ("http://h:1", {"headers": "a=b,c"}, "option headers: expected name=value, separated by commas"),
        ("http://h:1", {"timeout": True}, "option timeout=True: expected a number of seconds above zero"),
        ("http://h:1", {"certificate": 3}, "option certificate=3: expected the path of a file"),
        ("http://h:1", {"headers": ["a"]}, "option headers: expected a mapping of names to values"),
        ("http://h:1", {"headers": {1: "a"}}, "option headers: 1 is not a valid header name"),
    ],
)
def test_a_wrong_argument_is_named_like_a_wrong_address(
    url: str, options: dict[str, object], advice: str
) -> None:
    """
    Whichever way an option is given, it is checked.
    """
    with pytest.raises(TransportError, match=re.escape(advice)):
        transports.open(url, **options)


@pytest.mark.parametrize(
    ("url", "options", "address"),
    [
        ("http://h:1", {}, "http://h:1/v1/traces"),
        ("http://h:1?headers=a=secret", {"timeout": 3}, "http://h:1/v1/traces?timeout=3.0"),
        ("grpcs://h:1", {"max_bytes": "1KB"}, "grpcs://h:1?max_bytes=1000"),
    ],
)
def test_an_otlp_transport_knows_an_address_without_secrets(
    url: str, options: dict[str, object], address: str
) -> None:
    """
    A child process finds the same receiver; headers it gets from variables.
    """
    opened = opened_otlp(url, **options)

    assert address == opened.address
    assert replace(opened.settings, headers={}) == opened_otlp(address).settings


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("headers=a=hush&x=1", "unknown option 'x'"),
        ("headers=hush", "option headers: expected name=value, separated by commas"),
        ("headers=a%20b=hush", "option headers: 'a b' is not a valid header name"),
        ("headers=a=hush%0Ahush", "option headers: the value of a is not a valid header value"),
    ],
)
def test_a_wrong_address_does_not_give_headers_away(query: str, advice: str) -> None:
    """
    Errors end up in logs.
    """
    with pytest.raises(TransportError) as caught:
        transports.open(f"http://host:4318?{query}")

    message = str(caught.value)
    assert message.startswith(f"transport 'http://host:4318': {advice}")
    assert "hush" not in message


def test_a_transport_error_is_a_configure_error() -> None:
    """
    Set-up raises one class of errors.
    """
    assert issubclass(TransportError, ConfigureError)


@pytest.mark.parametrize(
    ("size", "count"),
    [("7", 7), ("7B", 7), ("64MB", 64_000_000), ("1 gib", 2**30), ("2KiB", 2048), ("3kb", 3000)],
)
def test_sizes_are_in_bytes_or_units(size: str, count: int) -> None:
    """
    Powers of a thousand, or of 1,024 with an i.
    """
    assert count == opened_file(f"file://a.jsonl?max_bytes={size}")._max_bytes


@pytest.mark.parametrize(
    "url",
    [
        "file://a.jsonl",
        "file://a b%3F.jsonl?max_bytes=64000000&fsync=segment",
        "file://runs/",
        "file://runs/?suffix=.jsonl.gz",
    ],
)
def test_a_file_transport_knows_an_address_that_holds_anywhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A child process that works in another directory finds the same place, with the same options.
    """
    transport = opened_file(url)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    other = opened_file(transport.address)

    known = ("path", "directory", "_max_bytes", "_fsync", "_suffix", "address")
    assert [getattr(transport, name) for name in known] == [getattr(other, name) for name in known]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@h",
        "https://me:hunter2@h:99999",
        "https://me:hunter2@h:abc",
        "grpc://me:hunter2@h/x",
        "ftp://me:hunter2@h",
        "mttp+http://me:hunter2@h",
        "http://h:4318?headers=authorization hunter2",
        "http://h:4318?header=authorization=hunter2",
        "mttp+http://h?token=hunter2",
        "http://h?timeout=5;headers=authorization=hunter2",
        "http://me:hun/ter@hunter2@h?x=1",
        "file://a.jsonl?token=hunter2",
        "me:hunter2@h:4318",
    ],
)
def test_an_error_repeats_no_secret(url: str) -> None:
    """
    Neither the credentials of an address nor the value of a misspelt option.
    """
    for opening in (mttp.configure, mttp.mist.dial, mttp.mist.receive):
        with pytest.raises(mttp.errors.TransportError) as caught:
            opening(url)

        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hunter2@h/a?sig=hunter2",
        "https://h/a.jsonl?X-Amz-Signature=hunter2",
        "https://h/a.jsonl#token=hunter2",
        "ftp://me:hunter2@h/a",
        "me:hunter2@h/a.jsonl",
        "jaeger://me:hunter2@h",
        "s3://me:hunter2@bucket/a?key=hunter2",
    ],
)
def test_an_error_of_reading_repeats_no_secret(address: str) -> None:
    """
    Whether it is taken for a file, a trace store or a dataset.
    """
    with pytest.raises(mttp.errors.ReadError) as caught:
        mttp.read(address)

    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"

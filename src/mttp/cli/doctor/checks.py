"""The checks of `mttp doctor`: installed versions, variables, folders and endpoints of transports."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from opentelemetry.sdk import environment_variables as sdk_variables
from packaging.requirements import Requirement
from rich.filesize import decimal

from mttp import transports
from mttp.cli.doctor.findings import SetupFinding
from mttp.codec import secrets
from mttp.errors import ConfigureError, MissingExtra, MttpError
from mttp.integrations import LIBRARIES
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
from mttp.transports import environment, otlp, sampling
from mttp.transports.file import FileTransport
from mttp.transports.options import flag, one_of, open_at, path_of, take
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.settings import VARIABLES, Settings, parse_variable

FEW_BYTES: Final = 10**9
"""Free bytes of a disk below which there is a warning."""
_FOR_DEVELOPMENT: Final = frozenset({"all", "dev", "docs", "test"})
"""Extras that are lists of others, or for work on mttp itself."""
_PACKAGES: Final = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""Packages by the scheme of transports that write when they are opened, and so are not opened."""
_FOLDERS: Final = ("file", "mttp+file", "tensorboard")
_OTLP: Final = ("OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_")
_FLAG = one_of("true", "false")
_SAMPLERS = [
    f"{start}{name}" for start in ("", "parentbased_") for name in ("always_on", "always_off", "traceidratio")
]

OWN: Final[Mapping[str, Callable[[str], object]]] = {
    TRANSPORT_VARIABLE: str,  # the check of transports opens it
    RUN_ID_VARIABLE: str,
    CONTENT_VARIABLE: flag,
    secrets.VARIABLE: lambda _: secrets.Secrets.stated(None),
    HELPER_VARIABLE: one_of("on", "off", "true", "false", "1", "0"),
    trust.VARIABLE: lambda _: trust.Trust.of(False, None),
}
"""The variables of mttp, each with what raises an exception for an invalid value."""
_OTEL: Final[Mapping[str, Callable[[str], object]]] = {
    "OTEL_SDK_DISABLED": _FLAG,
    "OTEL_TRACES_EXPORTER": str,  # the check of transports opens it
    "OTEL_TRACES_SAMPLER": one_of(*_SAMPLERS),
    "OTEL_TRACES_SAMPLER_ARG": lambda _: sampling.from_environment(),
    "OTEL_SERVICE_NAME": str,
    "OTEL_RESOURCE_ATTRIBUTES": str,
    **{f"{start}ENDPOINT": str for start in _OTLP},
    **{f"{start}INSECURE": _FLAG for start in _OTLP},
    **{f"{start}PROTOCOL": one_of("http/protobuf", "grpc") for start in _OTLP},
}


def run(url: str | None, *, timeout: float) -> Iterator[SetupFinding]:
    """
    Yield what the checks find, also of the transport `url`, or of those that the environment states.

    `timeout` is the limit in seconds of the request to an endpoint.
    """
    yield from _dependencies()
    yield from _extras()
    yield from _libraries()
    yield from _variables()
    yield from _transports(url, timeout)


# Versions.


def _dependencies() -> Iterator[SetupFinding]:
    """Compare the versions of mttp's dependencies with the bounds in its metadata."""
    yield SetupFinding("mttp", "ok", metadata.version("mttp"))
    for needed in _requirements(extra=""):
        version, install = _version(needed.name), f"pip install '{needed.name}{needed.specifier}'"
        if version is None:
            yield SetupFinding(needed.name, "error", "not installed", install)
        elif not needed.specifier.contains(version, prereleases=True):
            yield SetupFinding(needed.name, "error", f"{version} is outside {needed.specifier}", install)
        else:
            yield SetupFinding(needed.name, "ok", version)


def _extras() -> Iterator[SetupFinding]:
    """List the extras that are installed and those that are not, and packages outside their bounds."""
    names = sorted({*(metadata.metadata("mttp").get_all("Provides-Extra") or ())} - _FOR_DEVELOPMENT)
    extras = {name: parts for name in names if (parts := _requirements(extra=name))}
    missing = [name for name in extras if any(_version(needed.name) is None for needed in extras[name])]
    for name in extras.keys() - missing:
        for needed in extras[name]:
            if not needed.specifier.contains(version := _version(needed.name) or "", prereleases=True):
                outside = f"{needed.name} {version} is outside {needed.specifier}"
                yield SetupFinding(f"extra {name}", "warning", outside, f"pip install 'mttp[{name}]'")
    installed = ", ".join(name for name in extras if name not in missing)
    yield SetupFinding("extras", "ok", f"installed: {installed or 'none'}")
    if missing:
        advice = "pip install 'mttp[NAME]' adds one"
        yield SetupFinding("extras", "ok", f"not installed: {', '.join(missing)}", advice)


def _libraries() -> Iterator[SetupFinding]:
    """List the installed libraries that can be instrumented, with the versions that were tested."""
    for library in LIBRARIES.values():
        needed, version = Requirement(library.requires), _version(library.distribution)
        if version is None:
            continue
        if needed.specifier.contains(version, prereleases=True):
            tested = f"{library.distribution} {version}; tested: {library.tested}"
            yield SetupFinding("library", "ok", tested)
        else:
            outside = f"{library.distribution} {version} is outside {needed.specifier}"
            advice = f"it may not be recorded: pip install '{needed.name}{needed.specifier}'"
            yield SetupFinding("library", "warning", outside, advice)


def _requirements(*, extra: str) -> list[Requirement]:
    """Return what mttp, or one of its extras, needs here; extras of mttp itself are replaced by theirs."""
    requirements: list[Requirement] = []
    for needed in map(Requirement, metadata.requires("mttp") or ()):
        if (needed.marker is not None and "extra" in str(needed.marker)) is not bool(extra):
            continue
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        if needed.name == "mttp":
            requirements += [part for name in needed.extras for part in _requirements(extra=name)]
        else:
            requirements.append(needed)
    return requirements


def _version(distribution: str) -> str | None:
    """Return the installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


# Variables.


def _variables() -> Iterator[SetupFinding]:
    """List the variables that mttp reads: valid, invalid, or misspelt."""
    options = {f"{start}{option.upper()}": option for start in _OTLP for option in VARIABLES}
    readers = {**OWN, **_OTEL}
    readers |= {name: partial(_option, option, name) for name, option in options.items()}
    declared = {name for name in vars(sdk_variables) if name.startswith("OTEL_")} | readers.keys()
    for name in sorted(name for name in os.environ if name.startswith(("MTTP_", "OTEL_"))):
        if name in readers:
            yield _variable(name, readers[name])
        elif name.startswith("MTTP_"):
            near = get_close_matches(name, sorted(OWN), n=1)
            advice = f"did you mean {near[0]}?" if near else f"unset it; known are {', '.join(sorted(OWN))}"
            yield SetupFinding("variable", "warning", f"mttp reads no variable {name}", advice)
        elif name not in declared and (near := get_close_matches(name, sorted(declared), n=1, cutoff=0.9)):
            unknown = f"OpenTelemetry has no variable {name}"
            yield SetupFinding("variable", "warning", unknown, f"did you mean {near[0]}?")
    try:
        provider.check()
    except ConfigureError as error:
        yield SetupFinding("variable", "error", str(error.__cause__), "correct the variable, or unset it")
    if is_off():
        off = "OTEL_SDK_DISABLED=true: nothing is recorded"
        yield SetupFinding("variable", "warning", off, "unset OTEL_SDK_DISABLED")


def _option(option: str, name: str, value: str) -> object:
    return parse_variable(option, value, name)


def _variable(name: str, reader: Callable[[str], object]) -> SetupFinding:
    """Return whether a variable's value is valid; an empty one is as if it were not set."""
    value = os.environ[name].strip()
    if not value:
        return SetupFinding("variable", "ok", f"{name} is empty")
    shown = f"{name}={_without_secrets(name, value)}"
    try:
        reader(value)
    except (MttpError, ValueError) as error:
        message = str(error) if name in str(error) else f"{shown}: {error}"
        return SetupFinding("variable", "error", message, f"correct {name}, or unset it")
    return SetupFinding("variable", "ok", shown)


def _without_secrets(name: str, value: str) -> str:
    """Return the value of a variable without secrets: of headers, only the names."""
    if name.endswith("_HEADERS"):
        pairs = [pair.partition("=")[0].strip() for pair in value.split(",")]
        return ",".join(f"{header}={secrets.REDACTED}" for header in pairs)
    if name == secrets.VARIABLE:
        return value  # names
    if "://" in value:
        return ",".join(map(secrets.without_secrets, addresses(value)))
    return str(secrets.USUAL.hide(name, value, []))


# Transports.


def _transports(url: str | None, timeout: float) -> Iterator[SetupFinding]:
    """Check the transport `url`, else those of the variables, else the default."""
    variable = os.environ.get(TRANSPORT_VARIABLE, "").strip()
    source = "--transport" if url else TRANSPORT_VARIABLE if variable else "OTEL_* variables"
    try:
        if url or variable:
            for address in [url] if url else addresses(variable):
                yield from _address(address, timeout)
            return
        exporters = environment.from_environment()
    except MttpError as error:
        advice = "correct the address; docs/transports.md lists them"
        yield SetupFinding("transport", "error", f"{source}: {error}", advice)
        return
    if exporters is None:
        yield SetupFinding("transport", "ok", "file://mttp-runs/<run id>/, the default")
        yield from _folder(Path("mttp-runs"))
    elif not exporters:
        nothing = f"{source} select none: nothing is recorded"
        yield SetupFinding("transport", "error", nothing, "set MTTP_TRANSPORT")
    for exporter in exporters or ():
        if isinstance(exporter, OtlpTransport):
            yield from _receiver(exporter, timeout)
        else:
            yield SetupFinding("transport", "ok", type(exporter).__name__)


def _address(url: str, timeout: float) -> Iterator[SetupFinding]:
    """Check a transport without writing anything; raises MttpError for an address that can't be opened."""
    scheme = url.partition("://")[0]
    if scheme in _PACKAGES and find_spec(_PACKAGES[scheme]) is None:
        raise MissingExtra(package=_PACKAGES[scheme], extra=scheme, purpose=f"{scheme}://")
    if scheme == "wandb":
        from mttp.workflows.wandb import WandbRuns, project_of

        open_at(
            url, {}, lambda address, options: (take(options, WandbRuns), project_of(address)), "transport"
        )
    if scheme in _FOLDERS:
        yield from open_at(url, {}, _files, "transport")
    elif url.startswith(transports.RECEIVERS):
        transport, spool = open_at(url, {}, _otlp, "transport")
        yield from _receiver(transport, timeout)
        if spool is not None:
            yield from _folder(spool)
    else:
        if scheme != "wandb":
            transports.open(url).shutdown()
        yield SetupFinding("transport", "ok", secrets.without_secrets(url))
        if scheme in ("mttp+http", "mttp+https"):
            yield from _connection(url, timeout)


def _otlp(address: str, options: Mapping[str, object]) -> tuple[OtlpTransport, Path | None]:
    """Open the transport to a receiver without its spool, and return the spool's folder."""
    spool = take(options, Settings).get("spool")
    return otlp.open(address, {**options, "spool": None}), None if spool is None else Path(spool)


def _files(address: str, options: Mapping[str, object]) -> list[SetupFinding]:
    """Check the options of a file or folder, and whether it can be written."""
    path = Path(unquote(path_of(address))).expanduser()
    is_folder = address.endswith("/") or path.is_dir()
    if not address.startswith("tensorboard"):
        suffix = str(take(options, FileTransport).get("suffix", "")) if is_folder else path.suffix
        if suffix.endswith(".zst") and find_spec("zstandard") is None:
            raise MissingExtra(package="zstandard", extra="zstd", purpose="writing .zst")
    finding = SetupFinding("transport", "ok", address)
    is_file = not is_folder and not address.startswith("tensorboard")
    return [finding, *_folder(path.parent if is_file else path, path if is_file else None)]


def _folder(folder: Path, file: Path | None = None) -> Iterator[SetupFinding]:
    """Create and delete a file in the folder, or where it would be made, and look at the free space."""
    folder = folder.absolute()
    parent = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
        if file is not None and file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_APPEND))
        free = shutil.disk_usage(parent).free
    except OSError as error:
        place = file if file is not None and error.filename == str(file) else parent
        reason = f"can't write to {place}: {error.strerror}"
        yield SetupFinding("folder", "error", reason, "choose another place, or make this one writable")
        return
    remark = "" if parent == folder else f"; {folder} will be made"
    yield SetupFinding("folder", "ok", f"{parent} can be written{remark}")
    space = f"{decimal(free)} are free on the disk of {folder}"
    if free < FEW_BYTES:
        yield SetupFinding("disk", "warning", space, "free some space: spans would be lost on a full disk")
    else:
        yield SetupFinding("disk", "ok", space)


def _receiver(transport: OtlpTransport, timeout: float) -> Iterator[SetupFinding]:
    """Send an OTLP request without spans."""
    yield SetupFinding("transport", "ok", repr(transport))
    answer = transport.ping(timeout)
    transport.shutdown()
    if answer.verdict == "taken":
        words = f", and said: {answer.message}" if answer.message else ""
        yield SetupFinding("request", "ok", f"{transport!r} accepted an empty request{words}")
        return
    problem, _, advice = answer.message.partition("; ")
    advice = advice or "see the answer of the receiver"
    yield SetupFinding("request", "error", f"{transport!r}: {problem}", advice)


def _connection(url: str, timeout: float) -> Iterable[SetupFinding]:
    """Connect to a receiver of messages."""
    parts = urlsplit(url)
    place = parts.hostname or "", parts.port or (443 if parts.scheme.endswith("s") else 80)
    try:
        socket.create_connection(place, timeout).close()
    except OSError as error:
        reason = f"{place[0]}:{place[1]}: {error.strerror or error}"
        return [SetupFinding("connection", "error", reason, "is a receiver running there?")]
    return [SetupFinding("connection", "ok", f"{place[0]}:{place[1]}")]

"""The transports that a session would open, without writing anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mttp import transports
from mttp.codec.secrets import without_secrets
from mttp.errors import MissingExtra
from mttp.recording.configuration import TRANSPORT_VARIABLE, addresses
from mttp.transports import environment, otlp
from mttp.transports.file import FileTransport
from mttp.transports.options import open_at, path_of, take
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.settings import Settings

__all__ = ["SetupTarget", "stated", "targets"]

_FOLDERS = ("file://", "mttp+file://", "tensorboard://")
_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""Packages of other libraries by scheme; such a transport writes when it is opened, so it is not opened."""
_PORTS = {"http": 80, "https": 443}
_DEFAULT = "mttp-runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupTarget:
    """Where a transport writes to."""

    name: str
    """The address, without secrets."""
    folder: Path | None = None
    """The directory that gets files."""
    file: Path | None = None
    """The file to which lines are appended, if it is one file."""
    url: str = ""
    """The URL of an endpoint over HTTP."""
    host: str = ""
    """The host of an endpoint; empty if there is none."""
    port: int = 0
    """Its port."""
    secure: bool = False
    """Whether it uses TLS."""
    receiver: OtlpTransport | None = None
    """The transport to an OTLP receiver."""
    spool_bytes: int = 0
    """The limit of the folder, if it is a spool."""


def stated(url: str | None) -> tuple[str, list[str] | None]:
    """Return where the transports are stated, and their addresses; None for OpenTelemetry's variables."""
    if url is not None:
        return "--transport", [url]
    if value := os.environ.get(TRANSPORT_VARIABLE, "").strip():
        return TRANSPORT_VARIABLE, addresses(value)
    return "OTEL_* variables", None


def targets(given: list[str] | None) -> Iterator[SetupTarget]:
    """
    Return the targets of addresses; None stands for OpenTelemetry's variables, and without them the default.

    Raises MttpError for one that can't be opened.
    """
    if given is not None:
        yield from map(_of_address, given)
        return
    exporters = environment.from_environment()
    if exporters is None:
        yield SetupTarget(name=f"file://{_DEFAULT}/<run id>/, the default", folder=Path(_DEFAULT).absolute())
        return
    for exporter in exporters:
        is_ours = isinstance(exporter, OtlpTransport)
        yield _of_receiver(exporter) if is_ours else SetupTarget(name=type(exporter).__name__)  # type: ignore[arg-type]


def _of_address(url: str) -> SetupTarget:
    if url.startswith(_FOLDERS):
        return open_at(url, {}, _of_folder, "transport")
    if url.startswith(transports.RECEIVERS):
        return open_at(url, {}, _of_otlp, "transport")
    scheme = url.partition("://")[0]
    if scheme == "wandb":
        _need(scheme)
        return open_at(url, {}, _of_project, "transport")
    opened = transports.open(url)
    try:
        if scheme in ("mttp+http", "mttp+https"):
            return _of_url(url.removeprefix("mttp+").partition("?")[0], without_secrets(url))
        return SetupTarget(name=without_secrets(url))
    finally:
        opened.shutdown()


def _of_otlp(address: str, options: Mapping[str, object]) -> SetupTarget:
    """Return the target of a receiver, without creating its spool."""
    given = take(options, Settings)
    transport = otlp.open(address, {**options, "spool": None})
    target = _of_receiver(transport)
    if "spool" not in given:
        return target
    return replace(target, folder=Path(given["spool"]), spool_bytes=transport.settings.spool_bytes)


def _of_project(address: str, options: Mapping[str, object]) -> SetupTarget:
    from mttp.workflows.wandb import WandbRuns, project_of

    take(options, WandbRuns)
    project_of(address)
    return SetupTarget(name=address)


def _need(scheme: str) -> None:
    package = _MODULES[scheme]
    if find_spec(package) is None:
        raise MissingExtra(package=package, extra=scheme, purpose=f"{scheme}://")


def _of_folder(address: str, options: Mapping[str, object]) -> SetupTarget:
    """Return the target of a file or folder, whose options are checked."""
    scheme, path = address.partition("://")[0], Path(unquote(path_of(address))).expanduser().absolute()
    if scheme == "tensorboard":
        _need(scheme)
        return SetupTarget(name=address, folder=path)
    taken = take(options, FileTransport)
    is_folder = address.endswith("/") or path.is_dir()
    ending = str(taken.get("suffix", "")) if is_folder else path.suffix
    if ending.endswith(".zst") and find_spec("zstandard") is None:
        raise MissingExtra(package="zstandard", extra="zstd", purpose="writing .zst")
    return (
        SetupTarget(name=address, folder=path)
        if is_folder
        else SetupTarget(name=address, folder=path.parent, file=path)
    )


def _of_receiver(transport: OtlpTransport) -> SetupTarget:
    settings = transport.settings
    is_http = settings.protocol == "http"
    parts = urlsplit(settings.endpoint if is_http else f"//{settings.endpoint}")
    return SetupTarget(
        name=repr(transport),
        url=settings.endpoint if is_http else "",
        host=parts.hostname or "",
        port=parts.port or _PORTS.get(parts.scheme, 443),
        secure=settings.secure,
        receiver=transport,
    )


def _of_url(url: str, name: str) -> SetupTarget:
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return SetupTarget(
        name=name, url=url, host=parts.hostname or "", port=port, secure=parts.scheme == "https"
    )

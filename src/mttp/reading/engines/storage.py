"""Filesystems of datasets, by fsspec: folders and object storage."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.otlp.recording_files import DATASET_MARKER
from mttp.reading.engines.address import DatasetAddress

__all__ = ["PARTIAL", "UNFINISHED", "check_dataset", "filesystem_of", "is_dataset", "marker", "unfinished"]

UNFINISHED = "_writing-"
"""The beginning of the name of a file that is there until a write has ended; the write's name follows."""
PARTIAL = ".partial"
"""What the name of a file ends with that is not whole yet."""
_VERSION = 1
"""The version of the layout."""

_ATTEMPTS = 2
"""Attempts of each request, by s3fs and by botocore below it."""
_LIBRARIES = {"file": ("fsspec", "dataset"), "s3": ("s3fs", "s3")}


def is_dataset(path: Path) -> bool:
    """Whether the folder is a dataset; no folder has a name that is too long."""
    return os.path.isfile(path / DATASET_MARKER)  # noqa: PTH113 - `Path.is_file` raises for such a name


def marker() -> bytes:
    """The content of the file that marks a dataset."""
    return json.dumps({"format": "mttp dataset", "version": _VERSION}).encode()


def check_dataset(address: DatasetAddress, files: Any, root: str) -> None:
    """Raise ReadError unless the path has a dataset of the version that is read and written here."""
    try:
        document = files.cat_file(f"{root}/{DATASET_MARKER}")
    except FileNotFoundError as error:
        raise ReadError(
            f"{address} is not a dataset of mttp, or does not exist: it has no {DATASET_MARKER}; "
            "`mttp convert RUNS PLACE --partition` writes one"
        ) from error
    try:
        version = json.loads(document)["version"]
    except (LookupError, TypeError, ValueError) as error:
        raise ReadError(f"{address}: its {DATASET_MARKER} is damaged: {document[:50]!r}") from error
    if version != _VERSION:
        raise ReadError(
            f"{address}: the dataset has version {version}, mttp here knows {_VERSION}: update mttp"
        )


def unfinished(files: Any, root: str) -> list[str]:
    """Names of the writes to a dataset that have not ended: they are running, or were killed."""
    names = [path.rpartition("/")[2] for path in files.ls(root, detail=False)]
    return [name.removeprefix(UNFINISHED) for name in names if name.startswith(UNFINISHED)]


def filesystem_of(address: DatasetAddress) -> tuple[Any, str]:
    """
    The filesystem of an address, and the dataset's path in it.

    Credentials are those of the store's own tools: environment variables, profiles, the machine's role.
    Raises MissingExtra without the library, ReadError where the scheme has no files.
    """
    if address.scheme not in _LIBRARIES:
        raise ReadError(f"{address}: files can't be written there; write to a folder or s3://")
    package, extra = _LIBRARIES[address.scheme]
    try:
        library = import_module(package)
    except ImportError as error:
        raise MissingExtra(package=package, extra=extra, purpose=f"{address.scheme}://") from error
    fresh: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if address.scheme == "file":
        return library.filesystem("file", auto_mkdir=True, **fresh), str(Path(address.place).absolute())
    files = library.S3FileSystem(
        endpoint_url=address.options.get("endpoint"),
        client_kwargs={"region_name": address.options["region"]} if "region" in address.options else {},
        config_kwargs={
            "connect_timeout": address.timeout,
            "read_timeout": address.timeout,
            "retries": {"total_max_attempts": _ATTEMPTS},
        },
        default_cache_type="none",  # DuckDB asks for the ranges that it needs
        **fresh,
    )
    files.retries = _ATTEMPTS
    return files, address.place.partition("://")[2]

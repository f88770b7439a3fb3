"""Filesystems of datasets, by fsspec: folders and object storage."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.otlp.recording_files import DATASET_MARKER
from mttp.reading.engines.address import DatasetAddress

__all__ = ["filesystem_of", "is_dataset"]

_ATTEMPTS = 2
"""Attempts of each request, by s3fs and by botocore below it."""
_LIBRARIES = {"file": ("fsspec", "dataset"), "s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs")}


def is_dataset(path: Path) -> bool:
    """Whether the folder is a dataset."""

    return (path / DATASET_MARKER).is_file()


def filesystem_of(address: DatasetAddress) -> tuple[Any, str]:
    """
    The filesystem of an address, and the dataset's path in it.

    Credentials are those of the store's own tools: environment variables, profiles, the machine's role.
    Raises MissingExtra without the library, ReadError where the scheme has no files.
    """
    if address.scheme not in _LIBRARIES:
        raise ReadError(f"{address}: files can't be written there; write to a folder, s3:// or gs://")
    package, extra = _LIBRARIES[address.scheme]
    try:
        library = import_module(package)
    except ImportError as error:
        raise MissingExtra(package=package, extra=extra, purpose=f"{address.scheme}://") from error
    fresh: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if address.scheme == "file":
        return library.filesystem("file", auto_mkdir=True, **fresh), str(Path(address.place).absolute())
    endpoint = address.options.get("endpoint")
    if address.scheme == "s3":
        files = library.S3FileSystem(
            endpoint_url=endpoint,
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
    else:
        files = library.GCSFileSystem(
            endpoint_url=endpoint, requests_timeout=address.timeout, default_cache_type="none", **fresh
        )
    return files, address.place.partition("://")[2]

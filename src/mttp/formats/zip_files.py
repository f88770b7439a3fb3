"""Members of zip files, also those compressed by zstd, which Python reads from 3.14 on."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError

__all__ = ["json_member"]

_ZSTD = 93
_HEADER = struct.Struct("<26xHH")
"""The end of a member's local header: the lengths of its name and of its extra field."""
_MOST = 1 << 28
"""Size of a member that is read."""


_UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile)
"""What reading a damaged or encrypted member, or one of an unknown format, raises."""


def json_member(path: Path, name: str) -> Any:
    """Return the JSON value of a member; raises ReadError if there is none, and MissingExtra without zstd."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(name)
            if info.file_size > _MOST:
                raise ReadError(f"{path}: {name} has {info.file_size:,} bytes, more than {_MOST:,}")
            content = _zstd(path, info) if info.compress_type == _ZSTD else archive.read(info)
        return json.loads(content)
    except _UNREADABLE as error:
        raise ReadError(f"{path}: {name}: {error}") from error


def _zstd(path: Path, info: zipfile.ZipInfo) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"reading {path}") from error
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise ValueError("its header is cut off")
        file.seek(sum(_HEADER.unpack(header)), 1)
        compressed = file.read(min(info.compress_size, path.stat().st_size))  # a damaged size may be huge
    try:
        with zstandard.ZstdDecompressor().stream_reader(compressed) as stream:
            content: bytes = stream.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(content) != info.file_size:
        raise ValueError(
            f"it has {'more' if len(content) > info.file_size else 'fewer'} than {info.file_size:,} bytes"
        )
    return content

"""Spans on disk that wait until a receiver accepts them."""

from mttp.transports.spool.folder import SpoolFolder
from mttp.transports.spool.spool import Spool, SpoolFullError, bytes_of, folders, is_spool

__all__ = ["Spool", "SpoolFolder", "SpoolFullError", "bytes_of", "folders", "is_spool"]

"""From files, directories and sessions back to episodes, runs, tables and summaries."""

from mttp.reading.problems import Problem
from mttp.reading.recording import Recording, read
from mttp.reading.scanning import Scan, scan
from mttp.reading.summary import Summary, summarize

__all__ = ["Problem", "Recording", "Scan", "Summary", "read", "scan", "summarize"]

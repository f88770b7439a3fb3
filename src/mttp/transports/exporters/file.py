"""OTLP JSON lines in a file, plain or compressed: what a session's `file://` writes with."""

from mttp.transports.file import FileTransport as FileSpanExporter

__all__ = ["FileSpanExporter"]

"""The exporter of OTLP JSON lines to a plain or compressed file, which `file://` uses too."""

from mttp.transports.file import FileTransport as FileSpanExporter

__all__ = ["FileSpanExporter"]

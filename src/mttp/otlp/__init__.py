"""Spans, their encoding as OTLP, and the processes and HTTP connections that carry the bytes."""

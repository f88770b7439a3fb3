"""OTLP bytes: what a span looks like in a file or on the network."""

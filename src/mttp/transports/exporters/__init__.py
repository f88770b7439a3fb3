"""
Drop-in replacements of the official exporters, with mttp's encoders.

    .http  OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.http.trace_exporter
    .grpc  OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.grpc.trace_exporter
    .file  FileSpanExporter, for opentelemetry.exporter.otlp.json.file
"""

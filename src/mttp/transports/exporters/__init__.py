"""
Drop-in exporters for any OpenTelemetry set-up, with or without mttp: the official ones, encoding directly.

    .http  OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.http.trace_exporter
    .grpc  OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.grpc.trace_exporter
    .file  FileSpanExporter, for opentelemetry.exporter.otlp.json.file
"""

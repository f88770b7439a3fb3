"""
Drop-in exporters for any OpenTelemetry set-up, with or without mttp: the official ones, encoding directly.

    mttp.transports.exporters.http     OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.http.trace_exporter
    mttp.transports.exporters.grpc     OTLPSpanExporter, for opentelemetry.exporter.otlp.proto.grpc.trace_exporter
    mttp.transports.exporters.file     FileSpanExporter, for opentelemetry.exporter.otlp.json.file
"""

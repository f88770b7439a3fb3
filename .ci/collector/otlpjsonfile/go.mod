module mttp.dev/otlpjsonfile

go 1.25

require (
	github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza v0.160.0
	go.opentelemetry.io/collector/component v1.67.0
	go.opentelemetry.io/collector/consumer v1.67.0
	go.opentelemetry.io/collector/pdata v1.67.0
	go.opentelemetry.io/collector/receiver v1.67.0
	go.uber.org/zap v1.28.0
)

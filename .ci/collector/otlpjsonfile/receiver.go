// Package otlpjsonfile stands in for contrib's receiver of that name: it has the keys that replay.yaml uses, reads
// files by the same package, and like contrib's logs an error of what comes after it and goes on.
package otlpjsonfile

import (
	"context"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/adapter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/fileconsumer"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"
)

type config struct {
	fileconsumer.Config `mapstructure:",squash"`
	StorageID           *component.ID `mapstructure:"storage"`
}

// NewFactory returns the factory of the receiver.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(component.MustNewType("otlp_json_file"), func() component.Config {
		return &config{Config: *fileconsumer.NewConfig()}
	}, receiver.WithTraces(newReceiver, component.StabilityLevelDevelopment))
}

type lines struct {
	files   *fileconsumer.Manager
	id      component.ID
	storage *component.ID
}

func newReceiver(
	_ context.Context, settings receiver.Settings, given component.Config, next consumer.Traces,
) (receiver.Traces, error) {
	cfg := given.(*config)
	decoder := ptrace.JSONUnmarshaler{}
	take := func(ctx context.Context, tokens [][]byte, _ map[string]any, _ int64, _ []int64) error {
		for _, token := range tokens {
			traces, err := decoder.UnmarshalTraces(token)
			if err == nil {
				err = next.ConsumeTraces(ctx, traces)
			}
			if err != nil {
				settings.Logger.Error("a line is lost", zap.Int("bytes", len(token)), zap.Error(err))
			}
		}
		return nil
	}
	files, err := cfg.Build(settings.TelemetrySettings, take)
	if err != nil {
		return nil, err
	}
	return &lines{files: files, id: settings.ID, storage: cfg.StorageID}, nil
}

func (l *lines) Start(ctx context.Context, host component.Host) error {
	client, err := adapter.GetStorageClient(ctx, host, l.storage, l.id)
	if err != nil {
		return err
	}
	return l.files.Start(client)
}

func (l *lines) Shutdown(context.Context) error {
	return l.files.Stop()
}

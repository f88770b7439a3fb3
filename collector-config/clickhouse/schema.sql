-- The table that collector.yaml fills: the columns of the Collector's exporter, in which every attribute is text,
-- and typed ones for what is asked most. Ordered by run and name, so that a question about a run reads that run.
CREATE DATABASE IF NOT EXISTS mttp;

CREATE TABLE IF NOT EXISTS mttp.spans
(
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(T64, ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),

    run_id LowCardinality(String) MATERIALIZED SpanAttributes['mttp.run.id'],
    episode_id String MATERIALIZED SpanAttributes['mttp.episode.id'],
    is_episode Bool MATERIALIZED mapContains(SpanAttributes, 'mttp.episode.step_count'),
    env LowCardinality(String) MATERIALIZED SpanAttributes['mttp.env.id'],
    task String MATERIALIZED SpanAttributes['mttp.task.id'],
    group_id String MATERIALIZED SpanAttributes['mttp.group.id'],
    policy LowCardinality(String) MATERIALIZED SpanAttributes['mttp.policy.id'],
    policy_version String MATERIALIZED SpanAttributes['mttp.policy.version.start'],
    status LowCardinality(String) MATERIALIZED SpanAttributes['mttp.episode.status'],
    outcome LowCardinality(String) MATERIALIZED SpanAttributes['mttp.episode.outcome'],
    return Nullable(Float64) MATERIALIZED toFloat64OrNull(SpanAttributes['mttp.episode.return']),
    length Nullable(Int64) MATERIALIZED toInt64OrNull(SpanAttributes['mttp.episode.length']),
    step_index Nullable(Int64) MATERIALIZED toInt64OrNull(SpanAttributes['mttp.step.index']),
    step_reward Nullable(Float64) MATERIALIZED toFloat64OrNull(SpanAttributes['mttp.step.reward']),
    reward Nullable(Float64) MATERIALIZED toFloat64OrNull(SpanAttributes['mttp.reward.value']),
    reward_status LowCardinality(String) MATERIALIZED SpanAttributes['mttp.reward.status'],
    spec LowCardinality(String) MATERIALIZED SpanAttributes['mttp.spec.name'],
    spec_version LowCardinality(String) MATERIALIZED SpanAttributes['mttp.spec.version'],
    tokens Nullable(Int64) MATERIALIZED toInt64OrNull(SpanAttributes['mttp.token.count']),
    update_index Nullable(Int64) MATERIALIZED toInt64OrNull(SpanAttributes['mttp.update.index']),
    kl Nullable(Float64) MATERIALIZED toFloat64OrNull(SpanAttributes['mttp.update.kl']),

    INDEX by_trace TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_episode episode_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_group group_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_task task TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(Timestamp)
ORDER BY (run_id, SpanName, Timestamp)
TTL toDateTime(Timestamp) + INTERVAL 180 DAY
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1;

-- One row for each group of episodes that are compared with each other.
WITH others AS (
    SELECT DISTINCT trace_id
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL
        OR type IN ('run', 'run.start', 'eval.run', 'eval.run.start', 'eval.result')
)
SELECT
    -- Id of the group, unique in the run.
    coalesce("mttp.group.id", '') AS id,
    -- Id of the run.
    coalesce("mttp.run.id", '') AS run_id,
    -- Trace ids of the members, in the trainer's order.
    coalesce("mttp.group.episodes", []) AS episodes,
    -- Rewards of the members in that order; NaN for a member without a valid reward.
    coalesce("mttp.group.rewards", []) AS rewards,
    -- Advantages of the members in that order, NaN for a member without one; empty if none is known.
    coalesce("mttp.group.advantages", []) AS advantages,
    -- Number of members; the planned number if the group never completed.
    coalesce("mttp.group.size", 0) AS size,
    -- Number of finite rewards.
    coalesce("mttp.group.valid_count", 0) AS valid_count,
    -- Mean of the finite rewards; null without any.
    "mttp.group.reward_mean" AS reward_mean,
    -- Standard deviation of the finite rewards; null for `ddof` rewards or fewer.
    "mttp.group.reward_std" AS reward_std,
    -- Delta degrees of freedom of that standard deviation, 0 or 1.
    "mttp.group.ddof" AS ddof,
    -- Rewards in that standard deviation: group, batch, or none if advantages are not scaled.
    "mttp.group.scope" AS scope,
    -- Normalization of advantages: none, mean, mean_std or leave_one_out.
    "mttp.group.normalization" AS normalization,
    -- Task of the members.
    "mttp.task.id" AS task,
    -- Environment of the members.
    "mttp.env.id" AS env,
    -- User-supplied numbers by name.
    coalesce("mttp.metric", MAP {}) AS metrics,
    -- User-supplied values by name, JSON.
    "mttp.metadata.json" AS metadata,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce("mttp.faults", []) AS faults,
    -- Attributes that this version does not know, JSON.
    "mttp.extra.json" AS extra,
    -- Trace id of the group, 32 hex digits.
    trace_id,
    -- Span id of the group, 16 hex digits.
    span_id,
    -- Start, in nanoseconds since the Unix epoch.
    spans.start_time,
    -- Time at which the group completed or was given up, in nanoseconds since the Unix epoch.
    spans.end_time
FROM spans
ANTI JOIN others USING (trace_id)
WHERE type = 'group'
ORDER BY spans.start_time, span_id, place

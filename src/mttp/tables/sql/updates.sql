-- One row for each update of a policy.
WITH others AS (
    SELECT DISTINCT trace_id
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL
        OR type IN ('run', 'run.start', 'eval.run', 'eval.run.start', 'eval.result')
),
links AS (
    SELECT
        trace_id,
        flatten(list("mttp.update.groups" ORDER BY place) FILTER (
            "mttp.update.discard_reason" IS NULL AND "mttp.update.groups" IS NOT NULL
        )) AS groups,
        flatten(list("mttp.update.episodes" ORDER BY place) FILTER (
            "mttp.update.discard_reason" IS NULL AND "mttp.update.episodes" IS NOT NULL
        )) AS episodes
    FROM spans
    WHERE type = 'update.links'
    GROUP BY trace_id
),
reasons AS (
    SELECT
        trace_id, "mttp.update.discard_reason" AS reason, min(place) AS place,
        flatten(list(coalesce("mttp.update.episodes", []) ORDER BY place)) AS episodes
    FROM spans
    WHERE type = 'update.links' AND reason IS NOT NULL
    GROUP BY trace_id, reason
),
discarded AS (
    SELECT
        trace_id,
        '{' || string_agg(
            CAST(to_json(reason) AS VARCHAR) || ': ' || CAST(to_json(episodes) AS VARCHAR), ', ' ORDER BY place
        ) || '}' AS episodes
    FROM reasons
    GROUP BY trace_id
)
SELECT
    -- Index in the run, from 0.
    "mttp.update.index" AS "index",
    -- Id of the run.
    coalesce("mttp.run.id", '') AS run_id,
    -- Id of the updated policy.
    "mttp.policy.id" AS policy,
    -- Value of the loss.
    "mttp.update.loss" AS loss,
    -- Divergence from the sampling policy, or from the reference policy, in nats.
    "mttp.update.kl" AS kl,
    -- Mean entropy of the policy, in nats.
    "mttp.update.entropy" AS entropy,
    -- Norm of the gradient before clipping.
    "mttp.update.grad_norm" AS grad_norm,
    -- Learning rate.
    "mttp.update.learning_rate" AS learning_rate,
    -- Share of samples whose probability ratio was clipped, from 0 to 1.
    "mttp.update.clip_fraction" AS clip_fraction,
    -- Part of the loss that improves the policy.
    "mttp.update.policy_loss" AS policy_loss,
    -- Part of the loss by which the critic learns.
    "mttp.update.value_loss" AS value_loss,
    -- Share of the variance of the returns that the critic explains; at most 1.
    "mttp.update.explained_variance" AS explained_variance,
    -- Version of the policy before the update.
    "mttp.update.policy_version.before" AS policy_version_before,
    -- Version of the policy after the update.
    "mttp.update.policy_version.after" AS policy_version_after,
    -- Ids of the groups that the update trained on.
    coalesce(links.groups, []) AS groups,
    -- Trace ids of the episodes that the update trained on, without the members of `groups`.
    coalesce(links.episodes, []) AS episodes,
    -- Number of episodes that the update trained on.
    "mttp.update.episodes_consumed" AS consumed,
    -- Number of discarded episodes by reason.
    coalesce("mttp.update.discarded", MAP {}) AS discarded,
    -- Trace ids of the discarded episodes by reason, if recorded, JSON.
    discarded.episodes AS discarded_episodes,
    -- Oldest and newest policy version among the samples, for a replay buffer without episode ids.
    CASE WHEN len("mttp.update.sampled_versions") = 2 THEN "mttp.update.sampled_versions" END
        AS sampled_versions,
    -- Lowest number of updates between sampling an episode and training on it.
    "mttp.update.lag_min" AS lag_min,
    -- Mean number of updates between the two.
    "mttp.update.lag_mean" AS lag_mean,
    -- Highest number of updates between the two.
    "mttp.update.lag_max" AS lag_max,
    -- User-supplied numbers by name.
    coalesce("mttp.metric", MAP {}) AS metrics,
    -- User-supplied values by name, JSON.
    "mttp.metadata.json" AS metadata,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce("mttp.faults", []) AS faults,
    -- Attributes that this version does not know, JSON.
    "mttp.extra.json" AS extra,
    -- Trace id of the update, 32 hex digits.
    spans.trace_id,
    -- Span id of the update, 16 hex digits.
    span_id,
    -- Start, in nanoseconds since the Unix epoch.
    spans.start_time,
    -- End, in nanoseconds since the Unix epoch.
    spans.end_time
FROM spans
ANTI JOIN others ON others.trace_id = spans.trace_id
LEFT JOIN links ON links.trace_id = spans.trace_id
LEFT JOIN discarded ON discarded.trace_id = spans.trace_id
WHERE type = 'update'
ORDER BY spans.start_time, span_id, place

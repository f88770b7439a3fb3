-- One row for each episode with a reward of the whole: that which counts, with its components.
WITH chosen AS (
    SELECT episodes.trace_id, reward_trace_id, reward_span_id, spans.place
    FROM episodes
    JOIN spans ON spans.trace_id = reward_trace_id AND spans.span_id = reward_span_id
),
scores AS (
    SELECT
        trace_id,
        map_from_entries(list_sort(list((component, score)) FILTER (score IS NOT NULL))) AS components,
        map_from_entries(list_sort(list((component, status)) FILTER (status IS NOT NULL)))
            AS component_statuses
    FROM chosen
    JOIN results USING (place)
    GROUP BY trace_id
),
grades AS (
    SELECT
        chosen.trace_id,
        list("mttp.component.name" ORDER BY spans.place) FILTER ("mttp.grader.kind" = 'verifier') AS verifiers,
        flatten(list("mttp.reward.repeats" ORDER BY spans.place) FILTER ("mttp.reward.repeats" IS NOT NULL))
            AS repeats
    FROM chosen
    JOIN spans ON spans.trace_id = reward_trace_id AND spans.parent_id = reward_span_id
    WHERE spans.type = 'grade' AND "mttp.component.name" IS NOT NULL
    GROUP BY chosen.trace_id
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    chosen.trace_id,
    -- Name of the grader.
    "mttp.grader.name" AS grader,
    -- Version of the grader.
    "mttp.grader.version" AS grader_version,
    -- Name of the reward spec.
    "mttp.spec.name" AS spec_name,
    -- Version of the reward spec.
    "mttp.spec.version" AS spec_version,
    -- Digest of the reward spec.
    "mttp.spec.sha256" AS spec_sha256,
    -- Error message, if the status is error.
    "mttp.reward.error" AS error,
    -- Score of each component by name.
    coalesce(components, MAP {}) AS components,
    -- Status by name of the components that are not ok.
    coalesce(component_statuses, MAP {}) AS component_statuses,
    -- Names of the components that are verifiers.
    coalesce(verifiers, []) AS verifiers,
    -- Values of components that were called several times, of all calls.
    coalesce(repeats, []) AS repeats
FROM chosen
JOIN spans USING (place)
LEFT JOIN scores ON scores.trace_id = chosen.trace_id
LEFT JOIN grades ON grades.trace_id = chosen.trace_id

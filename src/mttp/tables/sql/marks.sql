-- One row for each component of a scoring: its score or status, and its weight.
WITH grades AS (
    SELECT
        judgements.rank, spans.start_time, spans.end_time, spans.place,
        coalesce("mttp.component.name", spans."mttp.grader.name", '') AS component,
        spans."mttp.reward.value" AS value,
        coalesce(spans."mttp.reward.status", 'missing') AS status,
        list_last(map_values(spans."weights")) AS weight
    FROM spans
    JOIN judgements
        ON judgements.span_trace_id = spans.trace_id
        AND judgements.span_id = spans.parent_id
        AND judgements.source <> 'step'
    WHERE spans.type = 'grade'
),
scored AS (
    SELECT judgements.rank, spans."scores", spans."score_statuses", spans."weights"
    FROM judgements
    JOIN spans ON spans.trace_id = judgements.span_trace_id AND spans.span_id = judgements.span_id
    WHERE spans."scores" IS NOT NULL OR spans."score_statuses" IS NOT NULL OR spans."weights" IS NOT NULL
),
numbers AS (
    SELECT rank, unnest(map_keys("scores")) AS component, unnest(map_values("scores")) AS value,
        generate_subscripts(map_keys("scores"), 1) AS "order"
    FROM scored
    UNION ALL
    SELECT rank, component, value, 1000000 + row_number() OVER (ORDER BY start_time, end_time, place)
    FROM grades
    WHERE value IS NOT NULL AND status = 'ok'
),
statuses AS (
    SELECT rank, unnest(map_keys("score_statuses")) AS component,
        unnest(map_values("score_statuses")) AS status,
        generate_subscripts(map_keys("score_statuses"), 1) AS "order"
    FROM scored
    UNION ALL
    SELECT rank, component, status, 1000000 + row_number() OVER (ORDER BY start_time, end_time, place)
    FROM grades
    WHERE value IS NULL OR status <> 'ok'
),
weighted AS (
    SELECT rank, unnest(map_keys("weights")) AS component, unnest(map_values("weights")) AS weight,
        0 AS "order"
    FROM scored
    WHERE "weights" IS NOT NULL
    UNION ALL
    SELECT rank, component, weight, row_number() OVER (ORDER BY start_time, end_time, place)
    FROM grades
    WHERE weight IS NOT NULL
),
facts AS (
    SELECT rank, component, value, NULL AS status, NULL AS weight, "order", 0 AS kind FROM numbers
    UNION ALL
    SELECT rank, component, NULL, status, NULL, "order", 1 FROM statuses
    UNION ALL
    SELECT rank, component, NULL, NULL, weight, "order", 2 FROM weighted
)
SELECT
    -- The scoring, as in `judgements`.
    rank,
    -- Exact name of the component.
    component,
    -- Score before weighting; null without one.
    arg_max(value, "order") FILTER (kind = 0) AS value,
    -- Status of a component that is not ok; null for others.
    arg_max(status, "order") FILTER (kind = 1) AS status,
    -- Weight; null without one.
    arg_max(weight, "order") FILTER (kind = 2) AS weight,
    -- Whether it is only a weight.
    min(kind) = 2 AS is_weight,
    -- Orders the components of a scoring.
    min([kind, "order"]) AS "order"
FROM facts
GROUP BY rank, component

-- One row for each group, and for each other episode, that an update trained on.
WITH numbered AS (
    SELECT
        run_id, groups, episodes,
        coalesce("index", row_number() OVER (PARTITION BY run_id ORDER BY start_time, span_id) - 1) AS "update"
    FROM updates
)
SELECT run_id, "update", unnest(groups) AS "group", NULL::VARCHAR AS trace_id
FROM numbered
UNION ALL
SELECT run_id, "update", NULL, unnest(episodes)
FROM numbered

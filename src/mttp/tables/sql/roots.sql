-- One row for each episode: its root, also if only its start marker or other spans were found.
WITH ours AS (
    SELECT trace_id, parent_id, type, "mttp.agent.id" AS agent, start_time, place
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL AND NOT contains(span_id, ':')
),
begun AS (
    SELECT trace_id, coalesce(min(place) FILTER (type = 'episode'), min(place)) AS place
    FROM ours
    WHERE type IN ('episode', 'episode.start')
    GROUP BY trace_id
),
orphans AS (
    SELECT
        trace_id,
        arg_min(place, [start_time, place]) AS place,
        arg_min(parent_id, [child_rank, place]) FILTER (child_rank IS NOT NULL) AS parent_of_children
    FROM (
        SELECT
            *,
            CASE
                WHEN type = 'segment' THEN 0
                WHEN type = 'segment.start' THEN 1
                WHEN type = 'agent' THEN 2
                WHEN type = 'step' AND agent IS NULL THEN 3
                WHEN type = 'steps' AND agent IS NULL THEN 4
            END AS child_rank
        FROM ours
        ANTI JOIN begun USING (trace_id)
    )
    GROUP BY trace_id
)
SELECT
    -- Trace id, 32 hex digits.
    spans.trace_id,
    -- Id of the run.
    coalesce("mttp.run.id", '') AS run_id,
    -- Span id of the root, 16 hex digits.
    CASE type
        WHEN 'episode' THEN span_id
        WHEN 'episode.start' THEN parent_id
        ELSE coalesce(parent_of_children, parent_id)
    END AS span_id,
    -- Start in nanoseconds since the Unix epoch.
    start_time,
    -- Whether its end was found.
    type = 'episode' AS is_finished,
    -- Whether it names a task.
    coalesce("mttp.task.id", '') <> '' AS has_task,
    -- Whether its tasks are those of an evaluation.
    lower(coalesce("mttp.task.split", '')) IN (
        'eval', 'evaluation', 'validation', 'valid', 'val', 'test'
    ) AS is_evaluation,
    -- Place in `spans` of its root, else of its start marker, else of the span that started first.
    place
FROM (FROM begun UNION ALL BY NAME FROM orphans) AS chosen
JOIN spans USING (place)

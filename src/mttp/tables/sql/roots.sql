-- One row for each episode: its root, also if only its start marker or other spans were found.
WITH ours AS (
    SELECT
        trace_id, span_id, parent_id, type, start_time, place,
        "mttp.run.id" AS run_id,
        coalesce("mttp.task.id", '') <> '' AS has_task,
        lower(coalesce("mttp.task.split", '')) IN (
            'eval', 'evaluation', 'validation', 'valid', 'val', 'test'
        ) AS is_evaluation,
        CASE type WHEN 'episode' THEN 0 WHEN 'episode.start' THEN 1 ELSE 2 END AS rank,
        CASE
            WHEN type = 'segment' THEN 0
            WHEN type = 'segment.start' THEN 1
            WHEN type = 'agent' THEN 2
            WHEN type = 'step' AND "mttp.agent.id" IS NULL THEN 3
            WHEN type = 'steps' AND "mttp.agent.id" IS NULL THEN 4
        END AS child_rank
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL AND NOT contains(span_id, ':')
),
found AS (
    SELECT
        trace_id,
        arg_min(
            {
                'run_id': run_id, 'span_id': span_id, 'parent_id': parent_id, 'rank': rank,
                'start_time': start_time, 'place': place, 'has_task': has_task, 'is_evaluation': is_evaluation
            },
            [rank, CASE rank WHEN 2 THEN start_time END, place]
        ) AS first,
        arg_min(parent_id, [child_rank, place]) FILTER (child_rank IS NOT NULL) AS parent_of_children
    FROM ours
    GROUP BY trace_id
)
SELECT
    -- Trace id, 32 hex digits.
    trace_id,
    -- Id of the run.
    coalesce(first.run_id, '') AS run_id,
    -- Span id of the root, 16 hex digits.
    CASE first.rank
        WHEN 0 THEN first.span_id
        WHEN 1 THEN first.parent_id
        ELSE coalesce(parent_of_children, first.parent_id)
    END AS span_id,
    -- Start in nanoseconds since the Unix epoch.
    first.start_time AS start_time,
    -- Whether its end was found.
    first.rank = 0 AS is_finished,
    -- Whether it names a task.
    first.has_task AS has_task,
    -- Whether its tasks are those of an evaluation.
    first.is_evaluation AS is_evaluation,
    -- Place in `spans` of its root, else of its start marker, else of the span that started first.
    first.place AS place
FROM found

-- One row for each call below a step: directly, or below spans of other libraries, of which several may record one
-- response.
WITH RECURSIVE reachable AS (
    SELECT
        trace_id,
        span_id,
        parent_id,
        place,
        start_time,
        end_time,
        "mttp.run.id" IS NULL AS is_foreign,
        type IN ('', 'call')
        AND "gen_ai.operation.name" IS NOT NULL
        AND (
            "mttp.run.id" IS NOT NULL
            OR "gen_ai.operation.name" IN (
                'chat', 'text_completion', 'generate_content', 'embeddings', 'retrieval', 'execute_tool'
            )
        ) AS is_call
    FROM spans
    WHERE "mttp.run.id" IS NULL OR type = 'call'
),

below AS (
    SELECT
        reachable.*,
        steps.place AS step,
        [(reachable.start_time, reachable.end_time, reachable.place)] AS path
    FROM reachable
    JOIN spans AS steps ON reachable.trace_id = steps.trace_id AND reachable.parent_id = steps.span_id
    WHERE steps.type = 'step' AND NOT contains(steps.span_id, ':')
    UNION ALL
    SELECT
        reachable.*,
        below.step,
        list_append(below.path, (reachable.start_time, reachable.end_time, reachable.place)) AS path
    FROM reachable
    JOIN below ON reachable.trace_id = below.trace_id AND reachable.parent_id = below.span_id
    WHERE below.is_foreign AND NOT below.is_call
)
SELECT
    -- Trace id, 32 hex digits.
    below.trace_id,
    -- Place of the call in `spans`.
    below.place,
    -- Place of the step in `spans`.
    below.step,
    -- Start, end and place of the spans from the step to the call, which order its calls.
    below.path,
    -- Whether another library recorded it.
    below.is_foreign,
    -- Duration in nanoseconds.
    below.end_time - below.start_time AS nanoseconds,
    -- Operation: chat, text_completion, execute_tool, ...
    "gen_ai.operation.name" AS operation,
    -- Time to the first token, in seconds.
    "gen_ai.response.time_to_first_chunk" AS first_chunk,
    -- Text that the model was given; loaded where a query asks for it.
    "prompt",
    -- Text that the model answered; loaded where a query asks for it.
    "completion"
FROM below
JOIN spans USING (trace_id, place)
WHERE is_call
QUALIFY
    NOT is_foreign
    OR "gen_ai.response.id" IS NULL
    OR row_number() OVER (
        PARTITION BY below.step, is_foreign, "gen_ai.response.id" ORDER BY below.path
    ) = 1

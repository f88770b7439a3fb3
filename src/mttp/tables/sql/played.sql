-- One row for each step of an episode, once, also if it is both in columns and a span.
WITH found AS (
    SELECT
        trace_id, span_id, start_time, place,
        contains(span_id, ':') AS is_packed,
        "mttp.step.index" AS "index",
        "mttp.agent.id" AS agent,
        coalesce("mttp.segment.id", '') AS segment
    FROM spans
    WHERE type = 'step'
),
alone AS (
    SELECT found.*
    FROM found
    ANTI JOIN (SELECT * FROM found WHERE NOT is_packed) AS known
        ON found.is_packed
        AND found.trace_id = known.trace_id
        AND found.segment = known.segment
        AND found."index" = known."index"
        AND found.agent IS NOT DISTINCT FROM known.agent
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    trace_id,
    -- Id of the row of `spans`; of a step in columns with a colon.
    span_id,
    -- Whether the step is in columns.
    is_packed,
    -- Index in the episode, or among the steps of the agent, from 0.
    "index",
    -- Id of the agent; null in an episode without several.
    agent,
    -- Place among the steps of the episode, from 0.
    row_number() OVER (
        PARTITION BY trace_id ORDER BY "index", start_time, is_packed DESC, place
    ) - 1 AS position
FROM alone

-- One row for each annotation and each episode or step that it is about, if the episode was found.
WITH stated AS (
    SELECT
        trace_id AS note_trace_id, span_id AS note_span_id, start_time, place, kind, "key", revision,
        step AS step_index,
        step_span_id AS target_span_id,
        unnest(list_distinct([episode] || rejected)) AS target
    FROM notes
    WHERE NOT is_of_several
),
placed AS (
    SELECT
        stated.* EXCLUDE (target_span_id),
        roots.run_id,
        CASE WHEN target_span_id <> roots.span_id THEN target_span_id ELSE '' END AS target_span_id
    FROM stated
    JOIN roots ON roots.trace_id = stated.target
),
indices AS (
    SELECT
        trace_id, "index",
        count(*) AS steps,
        any_value(span_id) AS span_id,
        arg_max(span_id, position) FILTER (agent IS NULL) AS last_span_id
    FROM played
    WHERE trace_id IN (SELECT target FROM placed)
    GROUP BY trace_id, "index"
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    placed.target AS trace_id,
    -- Id of the run of the episode.
    placed.run_id,
    -- Id of the step's row in `spans`; null for the whole episode, and if the step is not known.
    CASE
        WHEN kind = 'steps' THEN indices.last_span_id
        WHEN by_id.span_id IS NOT NULL THEN by_id.span_id
        WHEN indices.steps = 1 THEN indices.span_id
    END AS step_span_id,
    -- Whether it is about a step.
    target_span_id <> '' OR step_index IS NOT NULL AS is_on_step,
    -- Index of the step as stated.
    step_index,
    -- Kind of the annotation: score, outcome, advantage, label, comment, fact, preference or steps.
    kind,
    -- The kind, or the user-supplied key of a fact.
    "key",
    -- Trace id of the annotation.
    note_trace_id,
    -- Id of the annotation's row in `spans`.
    note_span_id,
    -- The annotation with the highest rank counts: by revision, then start and span id.
    row_number() OVER (ORDER BY revision, start_time, note_span_id, place) AS rank,
    -- Revision of the annotation.
    revision
FROM placed
LEFT JOIN played AS by_id
    ON by_id.trace_id = placed.target
    AND by_id.span_id = placed.target_span_id
    AND NOT by_id.is_packed
LEFT JOIN indices ON indices.trace_id = placed.target AND indices."index" = placed.step_index

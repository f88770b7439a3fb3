-- One row for each annotation, and for each step of an annotation of several steps.
WITH others AS (
    SELECT DISTINCT trace_id
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL
        OR type IN ('run', 'run.start', 'eval.run', 'eval.run.start', 'eval.result')
)
SELECT
    -- Trace id of the annotation, 32 hex digits.
    trace_id,
    -- Id of its row in `spans`; of a step of several with a colon.
    span_id,
    -- score, outcome, advantage, label, comment, preference, steps, or fact for a user-supplied key.
    coalesce("mttp.annotation.kind", 'fact') AS kind,
    -- The kind, or the user-supplied key of a fact.
    CASE
        WHEN "mttp.annotation.key" IS NULL
            OR "mttp.annotation.key" = CASE kind
                WHEN 'score' THEN 'mttp.reward.value'
                WHEN 'outcome' THEN 'mttp.episode.outcome'
                WHEN 'advantage' THEN 'mttp.advantage'
                WHEN 'label' THEN 'gen_ai.evaluation.score.label'
                WHEN 'comment' THEN 'gen_ai.evaluation.explanation'
            END
        THEN kind
        WHEN starts_with("mttp.annotation.key", 'mttp.metadata.')
        THEN substr("mttp.annotation.key", length('mttp.metadata.') + 1)
        ELSE "mttp.annotation.key"
    END AS "key",
    -- Trace id of the annotated episode; for a preference, of the chosen one.
    coalesce("mttp.annotation.target_trace_id", '') AS episode,
    -- Trace ids of the rejected episodes, for a preference.
    coalesce("mttp.annotation.rejected_trace_ids", []) AS rejected,
    -- Index of the annotated step as stated.
    "mttp.step.index" AS step,
    -- Span id of the annotated step as stated; empty if unknown.
    coalesce("mttp.annotation.target_span_id", '') AS step_span_id,
    -- The annotation of a key with the highest revision wins.
    coalesce("mttp.annotation.revision", 0) AS revision,
    -- Whether it is about several steps, each of which has a row.
    "mttp.steps.count" IS NOT NULL AS is_of_several,
    -- Start in nanoseconds since the Unix epoch.
    start_time,
    -- Place in `spans`.
    place
FROM spans
ANTI JOIN others USING (trace_id)
WHERE type = 'annotate'

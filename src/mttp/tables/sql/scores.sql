-- One row for each score that a grader gave a whole episode: while it was recorded, and later.
SELECT
    -- Trace id of the episode, 32 hex digits.
    roots.trace_id,
    -- Whether an annotation has it.
    type = 'annotate' AS is_late,
    -- Name of the grader.
    "mttp.grader.name" AS grader,
    -- Version of the grader.
    "mttp.grader.version" AS grader_version,
    -- verifier, check, rubric, shaping, penalty, judge or human.
    "mttp.grader.kind" AS grader_kind,
    -- The score; null without one.
    coalesce("mttp.reward.value", CASE type WHEN 'annotate' THEN "mttp.annotation.value.number" END) AS value,
    -- Place among the scores of this grader for the episode, from 1; the last one is current.
    row_number() OVER (
        PARTITION BY roots.trace_id, "mttp.grader.name"
        ORDER BY
            is_late, CASE WHEN is_late THEN coalesce("mttp.annotation.revision", 0) END, spans.start_time,
            CASE WHEN is_late THEN spans.span_id END, spans.end_time, spans.place
    ) AS position
FROM spans
JOIN roots ON roots.trace_id = CASE type WHEN 'annotate' THEN "mttp.annotation.target_trace_id" ELSE spans.trace_id END
WHERE
    coalesce("mttp.grader.name", '') <> ''
    AND CASE type
        WHEN 'reward' THEN spans.parent_id = roots.span_id
        WHEN 'annotate' THEN
            "mttp.annotation.kind" = 'score'
            AND "mttp.step.index" IS NULL
            AND coalesce("mttp.annotation.target_span_id", '') IN ('', roots.span_id)
        ELSE false
    END

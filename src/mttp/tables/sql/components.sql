-- One row for each component of a scoring, and for each component of an included spec below it.
WITH RECURSIVE graded AS (
    SELECT
        judgements.rank, spans.trace_id, spans.span_id, NULL::VARCHAR AS part_of,
        coalesce("mttp.component.name", '') AS component,
        [{'start': spans.start_time, 'end': spans.end_time, 'name': coalesce("mttp.component.name", ''),
            'place': spans.place}] AS path
    FROM spans
    JOIN judgements
        ON judgements.span_trace_id = spans.trace_id
        AND judgements.span_id = spans.parent_id
        AND judgements.source <> 'step'
    WHERE spans.type = 'grade' AND "mttp.component.name" IS NOT NULL
    UNION ALL
    SELECT
        graded.rank, spans.trace_id, spans.span_id, graded.component,
        "mttp.component.name",
        graded.path || [{'start': spans.start_time, 'end': spans.end_time, 'name': "mttp.component.name",
            'place': spans.place}]
    FROM graded
    JOIN spans ON spans.trace_id = graded.trace_id AND spans.parent_id = graded.span_id
    WHERE spans.type = 'grade' AND "mttp.component.name" IS NOT NULL
),
top_grades AS (
    SELECT rank, component, arg_max({'trace_id': trace_id, 'span_id': span_id}, path) AS span, max(path) AS path
    FROM graded
    WHERE part_of IS NULL
    GROUP BY rank, component
),
found AS (
    SELECT
        marks.rank, marks.component, NULL::VARCHAR AS part_of,
        marks.value, marks.weight, coalesce(marks.status, 'ok') AS status,
        top_grades.span.trace_id AS span_trace_id, top_grades.span.span_id AS span_id,
        marks."order", CASE WHEN false THEN top_grades.path END AS path
    FROM marks
    LEFT JOIN top_grades USING (rank, component)
    WHERE NOT marks.is_weight
    UNION ALL
    SELECT
        graded.rank, graded.component, graded.part_of,
        NULL, NULL, NULL,
        graded.trace_id, graded.span_id,
        marks."order", graded.path
    FROM graded
    JOIN top_grades ON top_grades.rank = graded.rank AND top_grades.path[1] = graded.path[1]
    JOIN marks ON marks.rank = top_grades.rank AND marks.component = top_grades.component
    WHERE graded.part_of IS NOT NULL
)
SELECT
    -- Trace id of the scored episode, 32 hex digits.
    judgements.trace_id,
    -- Id of the run of the episode.
    judgements.run_id,
    -- Index of the scored step; null for a scoring of the whole episode or agent.
    judgements.step_index,
    -- Id of the agent; null in an episode without several.
    judgements.agent,
    -- Position of the scoring among those of the episode, agent or step, from 0; null for an annotation.
    judgements.position,
    -- Revision of the annotation; null for a scoring of the run.
    judgements.revision,
    -- Component whose spec includes this one; null for a component of the scoring itself.
    found.part_of,
    -- Name of the component.
    found.component,
    -- Score before weighting; null unless the status is ok.
    CASE WHEN found.part_of IS NULL THEN found.value ELSE spans."mttp.reward.value" END AS value,
    -- Factor of the score in the reward; null for a check, and if unknown.
    CASE WHEN found.part_of IS NULL THEN found.weight ELSE list_last(map_values(spans."weights")) END AS weight,
    -- ok, error, abstained or missing.
    CASE WHEN found.part_of IS NULL THEN found.status ELSE coalesce(spans."mttp.reward.status", 'ok') END
        AS status,
    -- Class of the exception, invalid_value, out_of_range or missing_input.
    CASE
        WHEN spans.span_id IS NOT NULL THEN spans."mttp.reward.error_type"
        WHEN found.status = 'error' THEN 'invalid_value'
    END AS error_type,
    -- Name of the reward spec that scored.
    scoring."mttp.spec.name" AS spec_name,
    -- Version of the reward spec.
    CASE WHEN spec_name IS NOT NULL THEN scoring."mttp.spec.version" END AS spec_version,
    -- verifier, check, rubric, shaping, penalty, judge or human; null without a grade of its own.
    CASE WHEN spans.span_id IS NOT NULL THEN coalesce(spans."mttp.grader.kind", '') END AS kind,
    -- Error message, if the status is error.
    spans."mttp.reward.error" AS error,
    -- Part of the reward from this component; null if it did not count, or the reward is not a sum.
    spans."mttp.reward.contribution" AS contribution,
    -- pass or fail, for a verifier or a check.
    spans."mttp.reward.verdict" AS verdict,
    -- Lowest and highest value of the component.
    CASE WHEN len(spans."mttp.reward.range") = 2 THEN spans."mttp.reward.range" END AS "range",
    -- Whether the value was outside of the range and was clipped; null without a grade.
    CASE WHEN spans.span_id IS NOT NULL THEN coalesce(spans."mttp.reward.clipped", false) END AS clipped,
    -- Whether a call exceeded its time limit and could not be stopped; null without a grade.
    CASE WHEN spans.span_id IS NOT NULL THEN coalesce(spans."mttp.reward.late", false) END AS late,
    -- Values of all calls, for a component that is called several times; null without a grade.
    CASE WHEN spans.span_id IS NOT NULL THEN coalesce(spans."mttp.reward.repeats", []) END AS repeats,
    -- Standard deviation of `repeats` (ddof 1).
    spans."mttp.reward.spread" AS spread,
    -- The component's label for the value.
    spans."gen_ai.evaluation.score.label" AS label,
    -- The component's explanation of the value.
    spans."gen_ai.evaluation.explanation" AS explanation,
    -- The component's evidence for the value, JSON.
    nullif(nullif(spans."mttp.reward.evidence.json", '{}'), 'null') AS evidence,
    -- Whether the value is comparable only within its group.
    spans."mttp.grader.relative" AS relative,
    -- Start of the component's call, in nanoseconds since the Unix epoch; null without a grade.
    spans.start_time,
    -- End of the component's call, in nanoseconds since the Unix epoch; null without a grade.
    spans.end_time
FROM found
JOIN judgements USING (rank)
LEFT JOIN spans ON spans.trace_id = found.span_trace_id AND spans.span_id = found.span_id
LEFT JOIN spans AS scoring
    ON judgements.source <> 'step'
    AND scoring.trace_id = judgements.span_trace_id
    AND scoring.span_id = judgements.span_id
ORDER BY found.rank, found."order", found.path NULLS FIRST

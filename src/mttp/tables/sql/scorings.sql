-- One row for each scoring of an episode, an agent or a step, and for each score of an annotation.
WITH maps AS (
    SELECT
        rank,
        map_from_entries(list({'key': component, 'value': value} ORDER BY "order") FILTER (value IS NOT NULL))
            AS components,
        map_from_entries(list({'key': component, 'value': status} ORDER BY "order") FILTER (status IS NOT NULL))
            AS component_statuses,
        map_from_entries(list({'key': component, 'value': weight} ORDER BY "order") FILTER (weight IS NOT NULL))
            AS weights
    FROM marks
    GROUP BY rank
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
    -- Position among the scorings of the episode, agent or step in order of start, from 0; null for an annotation.
    judgements.position,
    -- Revision of the annotation, of which the highest of a grader counts; null for a scoring of the run.
    judgements.revision,
    -- Source of the annotation: a person or a program; null for a scoring of the run.
    CASE judgements.source WHEN 'annotation' THEN spans."mttp.annotation.source" END AS annotated_by,
    -- Whether it is the current score of its grader, annotations included; false without a grader.
    judgements.is_current,
    -- The reward before group normalization; valid if `status` is ok.
    judgements.value,
    -- ok, partial (given although a component failed or abstained), error, abstained or missing.
    judgements.status,
    -- Score of each component by name; a component without a number is in `component_statuses`.
    coalesce(maps.components, MAP {}) AS components,
    -- Status by name of the components that are not ok.
    coalesce(maps.component_statuses, MAP {}) AS component_statuses,
    -- Weight of each component by name.
    coalesce(maps.weights, MAP {}) AS weights,
    -- Error message, if the status is error.
    spans."mttp.reward.error" AS error,
    -- Class of the exception, invalid_value, out_of_range or missing_input.
    spans."mttp.reward.error_type" AS error_type,
    -- The invalid value as text, if a value was given that is not a finite number.
    spans."mttp.reward.raw" AS raw,
    -- Lowest and highest possible reward.
    CASE WHEN len(spans."mttp.reward.range") = 2 THEN spans."mttp.reward.range" END AS "range",
    -- Whether the value differs from the weighted sum of the components.
    coalesce(spans."mttp.reward.mismatch", false) AS mismatch,
    -- pass or fail, if a verifier decided.
    spans."mttp.reward.verdict" AS verdict,
    -- Names of the checks that failed.
    coalesce(spans."mttp.reward.failed_checks", []) AS failed_checks,
    -- Name of the verifier, judge or person that scored.
    spans."mttp.grader.name" AS grader,
    -- verifier, check, rubric, shaping, penalty, judge or human.
    spans."mttp.grader.kind" AS grader_kind,
    -- Version of the grader.
    spans."mttp.grader.version" AS grader_version,
    -- Whether the score is comparable only within its group.
    spans."mttp.grader.relative" AS relative,
    -- The grader's label for the score.
    spans."gen_ai.evaluation.score.label" AS label,
    -- The grader's explanation of the score.
    spans."gen_ai.evaluation.explanation" AS explanation,
    -- Whether the value was outside of the range and was clipped.
    coalesce(spans."mttp.reward.clipped", false) AS clipped,
    -- Evidence for the score, JSON.
    nullif(nullif(spans."mttp.reward.evidence.json", '{}'), 'null') AS evidence,
    -- Span id of the scoring, 16 hex digits; empty for components that a step has itself.
    CASE judgements.source WHEN 'step' THEN '' ELSE judgements.span_id END AS span_id,
    -- Start of scoring, in nanoseconds since the Unix epoch.
    judgements.start_time,
    -- End of scoring, in nanoseconds since the Unix epoch.
    judgements.end_time,
    -- Name of the reward spec that scored.
    spans."mttp.spec.name" AS spec_name,
    -- Version of the reward spec.
    CASE WHEN spec_name IS NOT NULL THEN spans."mttp.spec.version" END AS spec_version,
    -- SHA-256 of the spec document.
    CASE WHEN spec_name IS NOT NULL THEN spans."mttp.spec.sha256" END AS spec_sha256,
    -- SHA-256 of the code that the spec uses.
    CASE WHEN spec_name IS NOT NULL THEN spans."mttp.spec.code_sha256" END AS spec_code_sha256,
    -- How much of that code the digest covers: full, partial or opaque.
    CASE WHEN spec_name IS NOT NULL THEN spans."mttp.spec.code_coverage" END AS spec_code_coverage
FROM judgements
LEFT JOIN spans
    ON judgements.source <> 'step'
    AND spans.trace_id = judgements.span_trace_id
    AND spans.span_id = judgements.span_id
LEFT JOIN maps USING (rank)
ORDER BY judgements.rank

-- One row for each result of a grader: the total of a scoring, its components, and those of included specs.
--
-- Of the scorings of an episode, an agent or a step, the last one counts; of annotations each score does.
WITH RECURSIVE single_steps AS (
    SELECT
        trace_id, span_id, place,
        "scores" IS NOT NULL OR "score_statuses" IS NOT NULL AS is_scored
    FROM spans
    WHERE type = 'step' AND NOT contains(span_id, ':')
),
judged AS (
    SELECT 'episode' AS scope, trace_id, place
    FROM effective
    UNION ALL
    SELECT 'agent', spans.trace_id, spans.place
    FROM spans
    JOIN spans AS agents ON agents.trace_id = spans.trace_id AND agents.span_id = spans.parent_id
    WHERE spans.type = 'reward' AND agents.type = 'agent'
    QUALIFY row_number() OVER (
        PARTITION BY spans.trace_id, agents."mttp.agent.id"
        ORDER BY
            spans.start_time DESC, agents.start_time DESC, agents.end_time DESC, agents.place DESC,
            spans.end_time DESC, spans.place DESC
    ) = 1
    UNION ALL
    SELECT 'step', spans.trace_id, spans.place
    FROM spans
    JOIN single_steps ON single_steps.trace_id = spans.trace_id AND single_steps.span_id = spans.parent_id
    WHERE spans.type = 'reward' AND NOT single_steps.is_scored
    QUALIFY row_number() OVER (
        PARTITION BY single_steps.place ORDER BY spans.start_time DESC, spans.end_time DESC, spans.place DESC
    ) = 1
    UNION ALL
    SELECT 'step', trace_id, place
    FROM single_steps
    WHERE is_scored
    UNION ALL
    SELECT 'late', coalesce("mttp.annotation.target_trace_id", ''), place
    FROM spans
    WHERE type = 'annotate' AND "mttp.annotation.kind" = 'score' AND NOT contains(span_id, ':')
),
scorings AS (
    SELECT
        judged.scope,
        judged.trace_id AS episode,
        coalesce("mttp.run.id", '') AS run_id,
        CASE
            WHEN "mttp.spec.name" IS NULL THEN coalesce("mttp.grader.name", '')
            WHEN "mttp.spec.version" IS NULL THEN "mttp.spec.name"
            ELSE "mttp.spec.name" || ' ' || "mttp.spec.version"
        END AS grader,
        spans.place,
        spans.trace_id,
        CASE WHEN type <> 'step' THEN spans.span_id END AS span_id,
        CASE type WHEN 'step' THEN spans.end_time ELSE spans.start_time END AS "time",
        coalesce("mttp.grader.relative", false) AS relative,
        coalesce(
            CASE type
                WHEN 'step' THEN "mttp.step.reward"
                WHEN 'annotate' THEN coalesce("mttp.reward.value", "mttp.annotation.value.number")
                ELSE "mttp.reward.value"
            END
        ) AS value,
        coalesce(CASE type WHEN 'step' THEN "mttp.step.reward_status" ELSE "mttp.reward.status" END, 'missing')
            AS status,
        "mttp.reward.error_type" AS error_type,
        "mttp.reward.error" AS error,
        "mttp.reward.verdict" AS verdict,
        "mttp.reward.failed_checks" AS failed_checks,
        "scores" AS scores,
        "score_statuses" AS statuses
    FROM judged
    JOIN spans USING (place)
),
grades AS (
    SELECT
        scorings.place AS scoring, spans.place, spans.trace_id, spans.span_id,
        coalesce("mttp.component.name", "mttp.grader.name", '') AS component,
        "mttp.component.name" IS NOT NULL AS is_component
    FROM spans
    JOIN scorings ON scorings.trace_id = spans.trace_id AND scorings.span_id = spans.parent_id
    WHERE spans.type = 'grade'
    UNION ALL
    SELECT
        grades.scoring, spans.place, spans.trace_id, spans.span_id,
        grades.component || '.' || "mttp.component.name",
        true
    FROM spans
    JOIN grades ON grades.trace_id = spans.trace_id AND grades.span_id = spans.parent_id
    WHERE spans.type = 'grade' AND "mttp.component.name" IS NOT NULL AND grades.is_component
),
results AS (
    SELECT place AS scoring, '' AS component, value, status, error_type, error, verdict, failed_checks
    FROM scorings
    UNION ALL BY NAME
    SELECT
        grades.scoring, component,
        "mttp.reward.value" AS value,
        coalesce("mttp.reward.status", 'missing') AS status,
        "mttp.reward.error_type" AS error_type,
        "mttp.reward.error" AS error,
        "mttp.reward.verdict" AS verdict,
        coalesce("mttp.grader.relative", false) AS is_relative,
        -- A sample of a batch that made it raise says so in its evidence.
        "mttp.reward.status" = 'error'
            AND "mttp.reward.error" IS NOT NULL
            AND json_valid("mttp.reward.evidence")
            AND try("mttp.reward.evidence" ->> '$.batch.row' = "mttp.reward.evidence" ->> '$.batch.raised')
            AS raised
    FROM grades
    JOIN spans USING (place)
    WHERE is_component
    UNION ALL BY NAME
    SELECT scoring, component, value, 'ok' AS status
    FROM (
        SELECT place AS scoring, unnest(map_keys(scores)) AS component, unnest(map_values(scores)) AS value
        FROM scorings
        UNION ALL
        SELECT scoring, component, "mttp.reward.value"
        FROM grades
        JOIN spans USING (place)
        WHERE NOT is_component AND "mttp.reward.value" IS NOT NULL AND "mttp.reward.status" = 'ok'
    ) AS scored
    WHERE (scoring, component) NOT IN (SELECT (scoring, component) FROM grades WHERE is_component)
    UNION ALL BY NAME
    SELECT
        scoring, component, failed.status,
        CASE failed.status WHEN 'error' THEN 'invalid_value' END AS error_type
    FROM (
        SELECT place AS scoring, unnest(map_keys(statuses)) AS component, unnest(map_values(statuses)) AS status
        FROM scorings
        UNION ALL
        SELECT scoring, component, coalesce("mttp.reward.status", 'missing')
        FROM grades
        JOIN spans USING (place)
        WHERE
            NOT is_component
            AND ("mttp.reward.value" IS NULL OR coalesce("mttp.reward.status", 'missing') <> 'ok')
    ) AS failed
    JOIN scorings ON scorings.place = failed.scoring
    WHERE
        (scoring, component) NOT IN (SELECT (scoring, component) FROM grades WHERE is_component)
        AND NOT list_contains(map_keys(coalesce(scores, MAP {})), component)
),
-- Components of steps in columns, but those of steps that have a span, too.
packed AS (
    SELECT spans.place, trace_id, coalesce("mttp.run.id", '') AS run_id, spans.end_time AS "time", grading.*
    FROM (
        SELECT
            *,
            unnest(from_json("step_gradings", '[{
                "index": "BIGINT", "component": "VARCHAR", "status": "VARCHAR", "error_type": "VARCHAR",
                "value": "DOUBLE"
            }]')) AS grading
        FROM spans
        WHERE type = 'steps'
    ) AS spans
    ANTI JOIN (SELECT * FROM spans WHERE type = 'step' AND NOT contains(span_id, ':')) AS steps
        ON steps.trace_id = spans.trace_id
        AND coalesce(steps."mttp.segment.id", '') = coalesce(spans."mttp.segment.id", '')
        AND steps."mttp.agent.id" IS NOT DISTINCT FROM spans."mttp.agent.id"
        AND coalesce(steps."mttp.step.index", 0) = spans.grading."index"
)
SELECT
    -- Id of the run that recorded it.
    run_id,
    -- Trace id of the graded episode, 32 hex digits.
    episode,
    -- The graded object: episode, agent or step; late for a score of an annotation.
    scope,
    -- Name and version of the reward spec, else the grader's name; empty if neither is known.
    grader,
    -- Component, such as `safety.no_leak` for one of an included spec; empty for the total.
    component,
    -- ok, partial, error, abstained or missing.
    CASE WHEN component = '' AND results.value IS NOT NULL AND results.status = 'missing' THEN 'ok' ELSE results.status END AS status,
    -- Class of the exception, invalid_value, out_of_range or missing_input.
    results.error_type,
    -- The score; null for one that is comparable only within its group.
    CASE WHEN NOT coalesce(is_relative, scorings.relative) THEN results.value END AS value,
    -- pass or fail.
    results.verdict,
    -- Names of the checks that failed, for a total.
    results.failed_checks,
    -- Error message.
    results.error,
    -- Start of the scoring, in nanoseconds since the Unix epoch.
    "time",
    -- Whether this sample of a batch made the component raise.
    coalesce(raised, false) AS raised
FROM results
JOIN scorings ON scorings.place = results.scoring
UNION ALL
SELECT
    run_id, trace_id, 'step', '', component, status, error_type, value, NULL, NULL, NULL, "time", false
FROM packed

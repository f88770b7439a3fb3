-- One row for each component of a scoring, by its name: the result of a grade below the scoring, else that which the
-- scoring states itself.
SELECT
    -- Place of the scoring in `spans`.
    place,
    -- Name of the component, else of its grader.
    component,
    -- Score; null without one.
    arg_max(score, precedence) AS score,
    -- Status of a component that is not ok; null for others.
    arg_max(status, precedence) AS status
FROM (
    SELECT place, score.key AS component, score.value AS score, NULL AS status, (0::BIGINT, 0::BIGINT, 0::BIGINT) AS precedence
    FROM (SELECT place, unnest(map_entries("scores")) AS score FROM spans)
    UNION ALL
    SELECT place, status.key, NULL, status.value, (0::BIGINT, 0::BIGINT, 0::BIGINT)
    FROM (SELECT place, unnest(map_entries("score_statuses")) AS status FROM spans)
    UNION ALL
    SELECT
        scorings.place,
        coalesce(grades."mttp.component.name", grades."mttp.grader.name", ''),
        CASE WHEN grades."mttp.reward.status" = 'ok' THEN grades."mttp.reward.value" END,
        CASE
            WHEN grades."mttp.reward.status" IS DISTINCT FROM 'ok' OR grades."mttp.reward.value" IS NULL
                THEN coalesce(grades."mttp.reward.status", 'missing')
        END,
        (grades.start_time, grades.end_time, grades.place)
    FROM spans AS grades
    JOIN spans AS scorings ON scorings.trace_id = grades.trace_id AND scorings.span_id = grades.parent_id
    WHERE grades.type = 'grade' AND scorings.type IN ('reward', 'annotate')
)
GROUP BY place, component

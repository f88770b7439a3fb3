-- One row for each run that trains: those with updates, and those of kind train that may learn.
--
-- Of the latter no episode names a task, and not all of them evaluate.
WITH

processes AS (
    SELECT
        arg_min(
            {'id': "mttp.run.id", 'kind': coalesce("mttp.run.kind", 'train')},
            (CASE type WHEN 'run' THEN (0, 0) ELSE (1, -size) END, place)
        ) AS run
    FROM spans
    WHERE type IN ('run', 'run.start')
    GROUP BY trace_id
)

SELECT
    -- Id of the run.
    run.id AS run_id
FROM processes
WHERE
    run.kind = 'train'
    AND run.id NOT IN (SELECT run_id FROM roots GROUP BY run_id HAVING bool_or(has_task) OR bool_and(is_evaluation))
UNION
SELECT coalesce("mttp.run.id", '')
FROM spans
WHERE type = 'update'

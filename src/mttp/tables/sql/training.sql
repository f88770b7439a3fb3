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
),

played AS (
    SELECT
        coalesce("mttp.run.id", '') AS run_id,
        coalesce("mttp.task.id", '') <> '' AS has_task,
        lower(coalesce("mttp.task.split", '')) IN (
            'eval', 'evaluation', 'validation', 'valid', 'val', 'test'
        ) AS is_evaluation
    FROM roots
    JOIN spans USING (trace_id, place)
)

SELECT
    -- Id of the run.
    run.id AS run_id
FROM processes
WHERE
    run.kind = 'train'
    AND run.id NOT IN (SELECT run_id FROM played GROUP BY run_id HAVING bool_or(has_task) OR bool_and(is_evaluation))
UNION
SELECT coalesce("mttp.run.id", '')
FROM spans
WHERE type = 'update'

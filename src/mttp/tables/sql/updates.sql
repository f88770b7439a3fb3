-- One row for each update of the policy.
SELECT
    "mttp.run.id" AS run_id,
    "mttp.update.index" AS "index",
    "mttp.update.loss" AS loss,
    "mttp.update.kl" AS kl,
    "mttp.update.entropy" AS entropy,
    "mttp.update.grad_norm" AS grad_norm,
    trace_id,
    start_time,
    end_time
FROM spans
WHERE type = 'update'
ORDER BY start_time, span_id

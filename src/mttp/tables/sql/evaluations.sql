-- One row for each result of a task in an evaluation, including replaced results.
WITH others AS (
    SELECT DISTINCT trace_id
    FROM spans
    WHERE "mttp.episode.id" IS NOT NULL OR type IN ('run', 'run.start')
),
ours AS (
    SELECT * FROM spans
    ANTI JOIN others USING (trace_id)
    WHERE type IN ('eval.run', 'eval.run.start', 'eval.result')
),
results AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_id ORDER BY coalesce("mttp.eval.revision", 0), end_time, span_id, place
        ) AS position
    FROM ours
    ANTI JOIN (SELECT trace_id || span_id AS id, trace_id FROM ours WHERE type = 'eval.result') AS known
        ON known.trace_id = ours.trace_id
        AND known.id = split_part(coalesce(ours."mttp.message.id", ''), '-', 1)
    WHERE type = 'eval.result'
),
heads AS (
    SELECT *, 0 AS position FROM ours WHERE type <> 'eval.result'
    UNION ALL
    SELECT * FROM results WHERE position = 1
),
chosen AS (
    SELECT
        trace_id, start_time,
        coalesce("mttp.eval.id", CASE WHEN type <> 'eval.result' THEN trace_id END, '') AS id,
        coalesce("mttp.eval.suite.name", '') AS suite,
        "mttp.eval.suite.version" AS suite_version,
        coalesce("mttp.run.id", '') AS run_id,
        "mttp.run.name" AS run_name,
        "mttp.policy.id" AS policy,
        "mttp.policy.version.start" AS policy_version,
        CASE
            WHEN type = 'eval.run' THEN coalesce("mttp.eval.status", 'completed')
            WHEN "mttp.message.id" IS NOT NULL THEN 'unknown'
            ELSE 'unfinished'
        END AS status,
        "mttp.eval.tags" AS tags,
        "mttp.spec.name" AS spec_name,
        "mttp.spec.version" AS spec_version,
        "mttp.spec.sha256" AS spec_sha256
    FROM heads
    QUALIFY row_number() OVER (
        PARTITION BY trace_id
        ORDER BY
            CASE type WHEN 'eval.run' THEN 0 WHEN 'eval.run.start' THEN 1 ELSE 2 END,
            type = 'eval.run.start' AND "mttp.message.id" IS NOT NULL,
            place
    ) = 1
),
parts AS (
    SELECT *, row_number() OVER (ORDER BY id = '', start_time, trace_id) AS number FROM chosen
),
identified AS (
    SELECT id, min(start_time) AS start_time, arg_max(suite, number) AS suite, min(number) AS number
    FROM parts
    WHERE id <> ''
    GROUP BY id
),
-- Results without an evaluation belong to the latest one of their suite that began before, else to their own.
loose AS (
    SELECT
        results.trace_id, results.span_id, results.end_time, results.position,
        parts.start_time, parts.suite, parts.number,
        coalesce(earliest.start_time, 9223372036854775807) AS earliest
    FROM results
    JOIN parts USING (trace_id)
    LEFT JOIN (SELECT suite, min(start_time) AS start_time FROM identified GROUP BY suite) AS earliest
        ON earliest.suite = parts.suite
    WHERE parts.id = ''
),
first_loose AS (
    SELECT suite, min(number) AS number, arg_min(start_time, number) AS start_time
    FROM loose
    WHERE end_time < earliest
    GROUP BY suite
),
begun AS (
    SELECT id, suite, start_time, number, true AS is_identified FROM identified
    UNION ALL
    SELECT DISTINCT loose.trace_id, loose.suite, loose.start_time, loose.number, false
    FROM loose
    JOIN first_loose ON first_loose.suite = loose.suite
    WHERE loose.number = first_loose.number
        OR (loose.number > first_loose.number AND loose.end_time < least(loose.earliest, first_loose.start_time))
),
assigned AS (
    SELECT loose.trace_id, loose.span_id, arg_min(begun.id, [-begun.start_time, begun.number]) AS id
    FROM loose
    JOIN begun
        ON begun.suite = loose.suite
        AND begun.start_time <= loose.end_time
        AND (begun.is_identified OR begun.number < loose.number)
    GROUP BY loose.trace_id, loose.span_id
),
evaluations AS (
    SELECT
        coalesce(nullif(parts.id, ''), parts.trace_id) AS id,
        min(parts.start_time) AS start_time,
        arg_min(parts.trace_id, number) AS first_trace_id,
        arg_max(
            {
                'run_id': run_id, 'run_name': run_name, 'suite': suite, 'suite_version': suite_version,
                'status': status, 'policy': policy, 'policy_version': policy_version
            },
            number
        ) AS facts,
        arg_max({'name': spec_name, 'version': spec_version, 'sha256': spec_sha256}, number)
            FILTER (spec_name IS NOT NULL) AS spec
    FROM parts
    GROUP BY coalesce(nullif(parts.id, ''), parts.trace_id)
),
pairs AS (
    SELECT
        coalesce(nullif(id, ''), trace_id) AS id, number,
        unnest(tags) AS pair,
        generate_subscripts(tags, 1) AS place
    FROM parts
    WHERE tags IS NOT NULL
),
latest_tags AS (
    SELECT
        id,
        split_part(pair, '=', 1) AS name,
        arg_max(substr(pair, length(split_part(pair, '=', 1)) + 2), [number, place]) AS value,
        min([number, place]) AS first
    FROM pairs
    GROUP BY id, name
),
tagged AS (
    SELECT id, map_from_entries(list({'key': name, 'value': value} ORDER BY first)) AS tags
    FROM latest_tags
    GROUP BY id
),
placed AS (
    SELECT
        results.*,
        coalesce(assigned.id, nullif(parts.id, ''), results.trace_id) AS evaluation_id,
        parts.number,
        assigned.id IS NOT NULL AS is_assigned
    FROM results
    JOIN parts USING (trace_id)
    LEFT JOIN assigned ON assigned.trace_id = results.trace_id AND assigned.span_id = results.span_id
)
SELECT
    -- Id of the evaluation, shared by all processes that work on it.
    placed.evaluation_id AS eval_id,
    -- Id of the last run that worked on the evaluation.
    facts.run_id AS run_id,
    -- Name of that run.
    facts.run_name AS run_name,
    -- Name of the suite.
    facts.suite AS suite,
    -- Version of the suite.
    facts.suite_version AS suite_version,
    -- completed, aborted or error; unfinished without an end, unknown from messages alone.
    facts.status AS status,
    -- Id of the policy.
    facts.policy AS policy,
    -- Version of the policy.
    facts.policy_version AS policy_version,
    -- Tags for finding the evaluation.
    coalesce(tagged.tags, MAP {}) AS tags,
    -- Id of the task.
    coalesce("mttp.task.id", '') AS task,
    -- Index of the sample, from 0.
    coalesce("mttp.eval.sample_index", 0) AS sample,
    -- scored, abstained, skipped, errored or timed_out.
    coalesce("mttp.eval.outcome", 'scored') AS outcome,
    -- The score, a finite number; null unless the outcome is scored.
    "gen_ai.evaluation.score.value" AS score,
    -- The verdict; null without one.
    "test.case.result.status" = 'pass' AS passed,
    -- The baseline's score of the task, the mean of its samples; null without one.
    "mttp.eval.baseline_score" AS baseline_score,
    -- `score` minus `baseline_score`; null without both.
    "mttp.eval.delta" AS delta,
    -- Duration in seconds; null if unknown.
    "mttp.eval.duration" AS duration,
    -- Reason for a missing score.
    "mttp.eval.error" AS error,
    -- Class of the exception, or a word such as invalid_value.
    CASE
        WHEN "error.type" NOT IN ('scored', 'abstained', 'skipped', 'errored', 'timed_out') THEN "error.type"
    END AS error_type,
    -- Names of the subsets that the task belongs to.
    coalesce("mttp.task.slices", []) AS slices,
    -- Trace id of the task's episode, 32 hex digits; empty if unknown.
    coalesce("mttp.eval.episode_trace_id", '') AS episode,
    -- The result of a task and sample with the highest revision counts.
    coalesce("mttp.eval.revision", 0) AS revision,
    -- Faults in the arguments of the result, as `kind: detail`.
    coalesce("mttp.faults", []) AS faults,
    -- Attributes that this version does not know, JSON.
    "mttp.extra.json" AS extra,
    -- Trace id of the evaluation's part, 32 hex digits.
    placed.trace_id,
    -- Span id of the result, 16 hex digits.
    placed.span_id,
    -- Start of the task, in nanoseconds since the Unix epoch.
    placed.start_time,
    -- Time of the result, in nanoseconds since the Unix epoch.
    placed.end_time,
    -- Name of the reward spec.
    spec.name AS spec_name,
    -- Version of the reward spec.
    spec.version AS spec_version,
    -- SHA-256 of the spec document.
    spec.sha256 AS spec_sha256,
    -- Whether it is the current result of its task and sample.
    row_number() OVER (
        PARTITION BY placed.evaluation_id, coalesce("mttp.task.id", ''), coalesce("mttp.eval.sample_index", 0)
        ORDER BY
            coalesce("mttp.eval.revision", 0) DESC, placed.end_time DESC, placed.span_id DESC,
            is_assigned DESC, placed.number DESC, position DESC
    ) = 1 AS is_latest
FROM placed
JOIN evaluations ON evaluations.id = placed.evaluation_id
LEFT JOIN tagged ON tagged.id = placed.evaluation_id
ORDER BY
    evaluations.start_time, evaluations.first_trace_id, placed.evaluation_id,
    is_assigned, placed.number, position

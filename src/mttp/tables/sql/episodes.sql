-- One row for each episode, in order of start: also of those that did not end, and of those that do not count.
--
-- Later facts are settled: annotations, groups, parts that other processes recorded. Numbers that are NaN are null.
WITH

-- The span with the identity of an episode.
started AS (
    SELECT
        spans.*, roots.run_id, roots.is_finished, roots.has_task, roots.is_evaluation, roots.span_id AS root_span_id
    FROM roots
    JOIN spans USING (place)
),

whole AS (
    SELECT trace_id, bool_and(coalesce(found >= recorded, false)) AS has_all_spans
    FROM parts
    GROUP BY trace_id
),

-- Steps, and blocks of steps in columns without the steps that have a span. Other tables need a row for each step in
-- columns, whose id has a colon; here its block has it.
single_steps AS (
    SELECT
        trace_id,
        span_id,
        place,
        start_time,
        coalesce("mttp.segment.id", '') AS part,
        "mttp.agent.id" AS agent,
        coalesce("mttp.step.index", 0) AS "index",
        1 AS number,
        "mttp.step.reward" AS reward,
        "mttp.step.reward" IS NOT NULL OR "mttp.step.reward_status" IS DISTINCT FROM 'error' AS is_known,
        "scores" IS NOT NULL AS is_scored
    FROM spans
    WHERE type = 'step' AND NOT contains(span_id, ':')
),

step_blocks AS (
    SELECT
        trace_id,
        span_id,
        place,
        start_time,
        coalesce("mttp.segment.id", '') AS part,
        "mttp.agent.id" AS agent,
        coalesce("mttp.steps.first_index", 0) AS "index",
        "mttp.steps.count" AS number,
        "mttp.steps.reward_sum" AS reward,
        coalesce("mttp.steps.reward_errors", 0) = 0 AS is_known,
        "scores" IS NOT NULL AS is_scored
    FROM spans
    WHERE type = 'steps'
),

repeated AS (
    SELECT step_blocks.place, count(*) AS number
    FROM step_blocks
    JOIN single_steps
        ON step_blocks.trace_id = single_steps.trace_id
        AND step_blocks.part = single_steps.part
        AND step_blocks.agent IS NOT DISTINCT FROM single_steps.agent
        AND single_steps."index" >= step_blocks."index"
        AND single_steps."index" < step_blocks."index" + step_blocks.number
    GROUP BY step_blocks.place
),

all_steps AS (
    FROM single_steps
    UNION ALL BY NAME
    SELECT step_blocks.* REPLACE (step_blocks.number - coalesce(repeated.number, 0) AS number)
    FROM step_blocks
    LEFT JOIN repeated USING (place)
    WHERE step_blocks.number > coalesce(repeated.number, 0)
),

-- The steps that an episode's end does not sum up: those of an unfinished episode, and of other processes.
unsummed AS (
    FROM all_steps
    WHERE part <> '' OR trace_id IN (SELECT trace_id FROM roots WHERE NOT is_finished)
),

-- Steps of the process that started the episode do not count in `other_` columns.
sums AS (
    SELECT
        trace_id,
        sum(number) AS number,
        coalesce(sum(number) FILTER (part <> ''), 0) AS other_number,
        coalesce(max("index"::HUGEINT + number) FILTER (part <> ''), 0) AS other_length,
        fsum(reward) FILTER (agent IS NULL) AS reward,
        bool_or(isinf(reward)) FILTER (agent IS NULL) AS has_infinite,
        fsum(reward) FILTER (agent IS NULL AND part <> '') AS other_reward,
        bool_or(isinf(reward)) FILTER (agent IS NULL AND part <> '') AS has_other_infinite,
        bool_and(is_known) FILTER (agent IS NULL AND part <> '') AS are_others_known
    FROM unsummed
    GROUP BY trace_id
),

longest AS (
    SELECT trace_id, max(number) AS length
    FROM (SELECT trace_id, agent, sum(number) AS number FROM unsummed GROUP BY trace_id, agent)
    GROUP BY trace_id
),

tokens AS (
    SELECT
        trace_id,
        coalesce(sum("mttp.token.prompt_count"), 0) AS prompt_tokens,
        coalesce(sum("mttp.token.count"), 0) AS completion_tokens,
        sum("mttp.token.mean_logprob" * "mttp.token.count") FILTER (isfinite("mttp.token.mean_logprob"))
            / sum("mttp.token.count") FILTER (isfinite("mttp.token.mean_logprob")) AS mean_logprob
    FROM spans
    WHERE type = 'step' AND NOT contains(span_id, ':') AND ("mttp.token.count" IS NOT NULL OR "mttp.token.encoding" IS NOT NULL)
    GROUP BY trace_id
),

model_calls AS (
    SELECT
        trace_id,
        count(*) AS number,
        sum(nanoseconds) AS nanoseconds,
        fsum(first_chunk / number_of_first) AS first_chunk
    FROM (
        SELECT
            * REPLACE (CASE WHEN NOT isnan(first_chunk) THEN first_chunk END AS first_chunk),
            count(CASE WHEN NOT isnan(first_chunk) THEN first_chunk END) OVER (
                PARTITION BY trace_id
            ) AS number_of_first
        FROM called
        WHERE operation <> 'execute_tool'
    )
    GROUP BY trace_id
),

-- Text of the first step's observation and of all actions; those of a step's calls where it states none.
texts AS (
    SELECT
        trace_id,
        arg_min({'text': prompt}, ("index", start_time, place)).text AS prompt,
        string_agg(completion, chr(10) || chr(10) ORDER BY "index", start_time, place) AS completion
    FROM (
        SELECT
            all_steps.trace_id,
            all_steps."index",
            all_steps.start_time,
            all_steps.place,
            coalesce(spans."prompt", of_calls.prompt) AS prompt,
            coalesce(spans."completion", of_calls.completion) AS completion
        FROM all_steps
        JOIN spans USING (place)
        LEFT JOIN (
            SELECT step, arg_min(prompt, path) AS prompt, arg_max(completion, path) AS completion
            FROM called
            WHERE operation <> 'execute_tool'
            GROUP BY step
        ) AS of_calls ON all_steps.place = of_calls.step
    )
    GROUP BY trace_id
),

-- What else was said: texts of later observations and of calls, and errors below the episode, each once.
exchanged AS (
    SELECT trace_id, string_agg(words, chr(10) ORDER BY start_time, place, position) AS exchange
    FROM (
        SELECT said.trace_id, words, min(start_time) AS start_time, min(said.place) AS place, min(position) AS position
        FROM (
            SELECT
                trace_id, start_time, place, unnest("exchange") AS words, unnest(range(len("exchange"))) AS position
            FROM spans
            UNION ALL BY NAME
            SELECT trace_id, start_time, place, concat_ws(': ', "error.type", nullif(status_message, '')) AS words
            FROM spans
            WHERE type <> 'episode'
        ) AS said
        LEFT JOIN texts USING (trace_id)
        WHERE words <> '' AND NOT contains(concat_ws(chr(10), texts.prompt, texts.completion), words)
        GROUP BY said.trace_id, words
    )
    GROUP BY trace_id
),

-- Return and sum of step rewards, with those of other processes; a sum without a value is no number.
summed AS (
    SELECT
        started.trace_id,
        "mttp.episode.return_basis" AS basis,
        coalesce(is_finished AND (other_reward IS NOT NULL OR NOT are_others_known), false) AS has_others,
        CASE
            WHEN NOT is_finished THEN reward IS NOT NULL
            WHEN has_others THEN other_reward IS NOT NULL OR "mttp.episode.step_reward_sum" IS NOT NULL
            ELSE "mttp.episode.step_reward_sum" IS NOT NULL
        END AS has_rewards,
        CASE
            WHEN NOT has_others OR basis = 'episode' THEN "mttp.episode.return"
            WHEN are_others_known AND basis IS NULL THEN other_reward
            WHEN are_others_known AND "mttp.episode.return" IS NOT NULL
                THEN coalesce(other_reward, 0) + "mttp.episode.return"
        END AS sum_of_parts,
        CASE
            WHEN isinf(sum_of_parts) AND has_others AND basis IS DISTINCT FROM 'episode'
                AND NOT coalesce(has_other_infinite, false)
                AND NOT coalesce(isinf("mttp.episode.return"), false)
                THEN NULL
            ELSE sum_of_parts
        END AS return_of_parts,
        CASE WHEN has_others AND basis IS DISTINCT FROM 'episode' THEN 'steps' ELSE basis END AS basis_of_parts
    FROM started
    LEFT JOIN sums USING (trace_id)
),

-- The last late score of the whole episode, which counts if the program recorded no reward.
annotated AS (
    SELECT
        roots.trace_id,
        spans.place,
        spans.trace_id AS source,
        coalesce("mttp.annotation.kind", 'fact') AS kind,
        CASE
            WHEN "mttp.annotation.key" IS NULL
                OR (kind, "mttp.annotation.key") IN (
                    ('outcome', 'mttp.episode.outcome'),
                    ('score', 'mttp.reward.value'),
                    ('advantage', 'mttp.advantage')
                )
                THEN kind
            WHEN starts_with("mttp.annotation.key", 'mttp.metadata.')
                THEN substr("mttp.annotation.key", length('mttp.metadata.') + 1)
            ELSE "mttp.annotation.key"
        END AS key,
        "label" AS value,
        "mttp.annotation.value.number" AS number
    FROM roots
    JOIN spans ON roots.trace_id = "mttp.annotation.target_trace_id"
    WHERE
        spans.type = 'annotate'
        AND "mttp.step.index" IS NULL
        AND coalesce("mttp.annotation.target_span_id", '') IN ('', roots.span_id)
        AND kind IN ('outcome', 'score', 'advantage', 'fact')
        AND (kind = 'fact' OR kind = key)
    QUALIFY row_number() OVER (
        PARTITION BY roots.trace_id, kind, key
        ORDER BY coalesce("mttp.annotation.revision", 0) DESC, spans.start_time DESC, spans.span_id DESC
    ) = 1
),

-- The scoring of the whole episode.
scored AS (
    SELECT
        chosen.trace_id,
        chosen.place,
        spans.trace_id AS source,
        spans.span_id,
        chosen.is_late,
        chosen.part,
        chosen.states_total,
        coalesce(
            "mttp.reward.value", CASE WHEN chosen.is_late THEN "mttp.annotation.value.number" END
        ) AS value,
        CASE
            WHEN value IS NOT NULL AND coalesce("mttp.reward.status", 'missing') = 'missing' THEN 'ok'
            ELSE coalesce("mttp.reward.status", 'missing')
        END AS status,
        "mttp.reward.verdict" AS verdict
    FROM (
        SELECT trace_id, place, false AS is_late, part, states_total FROM effective
        UNION ALL
        SELECT annotated.trace_id, annotated.place, true, NULL, NULL
        FROM annotated
        JOIN summed USING (trace_id)
        WHERE
            kind = 'score'
            AND basis_of_parts IS NULL
            AND NOT has_rewards
            AND annotated.trace_id NOT IN (SELECT trace_id FROM effective)
    ) AS chosen
    JOIN spans USING (place)
),

-- The scorings that say something of an episode: that of the whole, and the last one of each step in order of steps.
all_scorings AS (
    SELECT trace_id, place, true AS of_episode, true AS is_span, (0::BIGINT, 0::BIGINT, 0::BIGINT) AS "order"
    FROM scored
    UNION ALL
    SELECT trace_id, place, false, false, ("index", start_time, place)
    FROM all_steps
    WHERE is_scored
    UNION ALL
    SELECT trace_id, place, false, true, "order"
    FROM (
        SELECT
            rewards.trace_id,
            rewards.place,
            (single_steps."index", single_steps.start_time, single_steps.place) AS "order"
        FROM (
            SELECT trace_id, parent_id, start_time, end_time, place
            FROM spans
            ANTI JOIN roots ON roots.trace_id = spans.trace_id AND roots.span_id = spans.parent_id
            WHERE type = 'reward'
        ) AS rewards
        JOIN single_steps ON rewards.trace_id = single_steps.trace_id AND rewards.parent_id = single_steps.span_id
        WHERE NOT single_steps.is_scored
        QUALIFY row_number() OVER (
            PARTITION BY single_steps.place
            ORDER BY rewards.start_time DESC, rewards.end_time DESC, rewards.place DESC
        ) = 1
    )
),

-- The reward of the episode has components or a spec; else those of the rewards of its steps count.
counted_scorings AS (
    SELECT all_scorings.*
    FROM all_scorings
    LEFT JOIN (
        SELECT scored.trace_id
        FROM scored
        JOIN spans USING (place)
        WHERE "mttp.spec.name" <> ''
        UNION
        SELECT scored.trace_id
        FROM scored
        JOIN results USING (place)
        WHERE score IS NOT NULL
    ) AS described USING (trace_id)
    WHERE of_episode = (described.trace_id IS NOT NULL)
),

component_scores AS (
    SELECT
        trace_id,
        map_from_entries(list_sort(list((component, score)) FILTER (score IS NOT NULL))) AS scores,
        map_from_entries(list_sort(list((component, status)) FILTER (status IS NOT NULL))) AS statuses
    FROM (
        SELECT
            trace_id,
            component,
            fsum(score) AS score,
            arg_max(status, "order") FILTER (is_span) AS status
        FROM counted_scorings
        JOIN results USING (place)
        GROUP BY trace_id, component
    )
    GROUP BY trace_id
),

specs AS (
    SELECT
        counted_scorings.trace_id,
        arg_max(
            {'name': "mttp.spec.name", 'version': "mttp.spec.version", 'sha256': "mttp.spec.sha256"}, "order"
        ) AS spec
    FROM counted_scorings
    JOIN spans USING (place)
    WHERE is_span AND "mttp.spec.name" IS NOT NULL
    GROUP BY counted_scorings.trace_id
),

checks AS (
    SELECT
        counted_scorings.trace_id,
        list_sort(list_distinct(flatten(list("mttp.reward.failed_checks")))) AS failed_checks
    FROM counted_scorings
    JOIN spans USING (place)
    WHERE is_span AND "mttp.reward.failed_checks" IS NOT NULL
    GROUP BY counted_scorings.trace_id
),

graders AS (
    SELECT
        trace_id,
        list({'name': name, 'version': version} ORDER BY of_episode DESC, name NULLS FIRST, version NULLS FIRST) AS graders
    FROM (
        SELECT DISTINCT
            all_scorings.trace_id,
            of_episode,
            nullif("mttp.grader.name", '') AS name,
            nullif("mttp.grader.version", '') AS version
        FROM all_scorings
        JOIN spans USING (place)
        WHERE is_span
    )
    WHERE name IS NOT NULL OR version IS NOT NULL
    GROUP BY trace_id
),

-- The last group that names an episode as a member, and the last one with advantages.
grouped AS (
    SELECT
        member,
        arg_max(id, (start_time, span_id, position)) AS id,
        arg_max({'value': advantages[position]}, (start_time, span_id, position)) FILTER (
            len(advantages) = size
        ).value AS advantage
    FROM (
        SELECT
            coalesce("mttp.group.id", '') AS id,
            start_time,
            span_id,
            "mttp.group.advantages" AS advantages,
            len("mttp.group.episodes") AS size,
            unnest("mttp.group.episodes") AS member,
            generate_subscripts("mttp.group.episodes", 1) AS position
        FROM spans
        WHERE type = 'group'
    )
    GROUP BY member
),

-- Metrics, labels and faults of the episode and of the ends of other processes' parts, the first of which win.
ends AS (
    SELECT trace_id, place, (0::BIGINT, 0::BIGINT, 0::BIGINT) AS "order"
    FROM started
    UNION ALL
    SELECT trace_id, place, (start_time, end_time, place)
    FROM spans
    WHERE type = 'segment'
),

metrics AS (
    SELECT trace_id, map_from_entries(list_sort(list((name, number)))) AS metrics
    FROM (
        SELECT trace_id, metric.key AS name, arg_min(metric.value, "order") AS number
        FROM (
            SELECT ends.*, unnest(map_entries("mttp.metric")) AS metric
            FROM ends
            JOIN spans USING (place)
        )
        GROUP BY trace_id, metric.key
    )
    GROUP BY trace_id
),

labelled AS (
    SELECT trace_id, map_from_entries(list_sort(list((name, label)))) AS labels
    FROM (
        SELECT trace_id, name, arg_min({'text': label}, "order").text AS label
        FROM (
            SELECT trace_id, entry.key AS name, entry.value AS label, "order"
            FROM (
                SELECT ends.*, unnest(map_entries("labels")) AS entry
                FROM ends
                JOIN spans USING (place)
            )
            UNION ALL
            SELECT trace_id, key, value, (-1, 0, 0)
            FROM annotated
            WHERE kind = 'fact'
        )
        GROUP BY trace_id, name
    )
    WHERE label IS NOT NULL
    GROUP BY trace_id
),

faulty AS (
    SELECT ends.trace_id, flatten(list("mttp.faults" ORDER BY "order")) AS faults
    FROM ends
    JOIN spans USING (place)
    WHERE "mttp.faults" IS NOT NULL
    GROUP BY ends.trace_id
),

stated AS (
    SELECT
        trace_id,
        any_value(value) FILTER (kind = 'outcome' AND value IN ('success', 'failure', 'unknown')) AS outcome,
        any_value({'value': number}) FILTER (kind = 'advantage' AND number IS NOT NULL).value AS advantage
    FROM annotated
    GROUP BY trace_id
),

settled AS (
    SELECT
        started.*,
        CASE WHEN is_finished THEN coalesce("mttp.episode.status", 'completed') ELSE 'unfinished' END AS status,
        coalesce(stated.outcome, "mttp.episode.outcome", 'unknown') AS outcome,
        CASE
            WHEN is_late AND scored.status = 'ok' THEN scored.value
            WHEN is_finished AND basis IS DISTINCT FROM 'episode' AND part <> '' AND states_total THEN scored.value
            ELSE return_of_parts
        END AS return_of_all,
        scored.value AS reward,
        coalesce(scored.status, 'missing') AS reward_status,
        scored.verdict,
        scored.source AS reward_trace_id,
        scored.span_id AS reward_span_id,
        coalesce(stated.advantage, "mttp.advantage", grouped.advantage) AS advantage,
        coalesce("mttp.group.id", grouped.id) AS "group",
        CASE
            WHEN NOT is_finished THEN coalesce(longest.length, 0)
            ELSE greatest(coalesce("mttp.episode.length", 0), coalesce(other_length, 0))
        END AS length,
        CASE
            WHEN NOT is_finished THEN coalesce(sums.number, 0)
            ELSE coalesce("mttp.episode.step_count", 0) + coalesce(other_number, 0)
        END AS step_count,
        NOT has_task AND training.run_id IS NOT NULL AS is_in_curve
    FROM started
    LEFT JOIN training USING (run_id)
    LEFT JOIN sums USING (trace_id)
    LEFT JOIN longest USING (trace_id)
    LEFT JOIN summed USING (trace_id)
    LEFT JOIN scored USING (trace_id)
    LEFT JOIN stated USING (trace_id)
    LEFT JOIN grouped ON started.trace_id = grouped.member
)

SELECT
    -- Trace id, 32 hex digits.
    settled.trace_id,
    -- Id of the episode: the trace id, unless several attempts share an id.
    coalesce("mttp.episode.id", '') AS id,
    -- Id of the run.
    settled.run_id,
    -- Start, in nanoseconds since the Unix epoch.
    settled.start_time,
    -- End, in nanoseconds since the Unix epoch; null while unfinished.
    CASE WHEN is_finished THEN settled.end_time END AS end_time,
    -- Index among the episodes that the process started, from 0.
    "mttp.episode.index" AS "index",
    -- Number of the attempt at this episode, from 0.
    "mttp.episode.attempt" AS attempt,
    -- Id of the environment.
    coalesce("mttp.env.id", '') AS env,
    -- Version of the environment.
    "mttp.env.version" AS env_version,
    -- Arguments of the environment's constructor, as JSON.
    "mttp.env.kwargs" AS env_kwargs,
    -- Observation and action space of the environment, as JSON.
    "mttp.env.spaces" AS env_spaces,
    -- Wrappers of the environment, outermost first.
    coalesce("mttp.env.wrappers", []) AS env_wrappers,
    -- Id of the task.
    "mttp.task.id" AS task,
    -- Seed of the environment, as text.
    "mttp.env.seed" AS seed,
    -- Data split of the task.
    "mttp.task.split" AS split,
    -- Names of the subsets that the task belongs to.
    coalesce("mttp.task.slices", []) AS slices,
    -- What a reward needs besides the steps, as JSON.
    "mttp.inputs.json" AS inputs,
    -- Id of the group: the episode's own, else that of the last group that has it as a member.
    settled."group",
    -- Id of the policy.
    "mttp.policy.id" AS policy,
    -- Version of the policy at the first step.
    "mttp.policy.version.start" AS policy_version,
    -- completed, aborted or error; unfinished if the end is not in the recording.
    settled.status,
    -- success, failure or unknown; the last annotation of it wins.
    settled.outcome,
    -- Whether it succeeded: by the outcome, else by the verdict of the reward; null if neither says.
    CASE settled.outcome
        WHEN 'success' THEN true
        WHEN 'failure' THEN false
        ELSE CASE settled.verdict WHEN 'pass' THEN true WHEN 'fail' THEN false END
    END AS success,
    -- Reason of the environment for the end.
    "mttp.episode.stop_reason" AS stop_reason,
    -- Class of the exception that ended the episode.
    "error.type" AS error_type,
    -- Whether the task ended.
    "mttp.episode.terminated" AS terminated,
    -- Whether a limit cut the episode off.
    "mttp.episode.truncated" AS truncated,
    -- counted; error and not_finished count as missing; cut_off and evaluation are left out, too, as no part of the learning curve.
    CASE
        WHEN is_in_curve AND is_evaluation THEN 'evaluation'
        WHEN settled.status = 'completed' THEN 'counted'
        WHEN settled.status = 'error' THEN 'error'
        WHEN
            is_in_curve
            AND (
                settled.status <> 'aborted'
                OR coalesce("mttp.episode.stop_reason", '') = ''
                OR split_part("mttp.episode.stop_reason", '.', -1) IN (
                    'closed',
                    'training_ended',
                    'session_closed',
                    'KeyboardInterrupt',
                    'SystemExit',
                    'GeneratorExit',
                    'CancelledError'
                )
            )
            THEN 'cut_off'
        ELSE 'not_finished'
    END AS counts_reason,
    -- Whether return, reward, outcome, length, tokens, times, metrics and components count in statistics.
    counts_reason = 'counted' AS counts,
    -- Return as recorded: a given total or the sum of step rewards; in statistics it counts where return_counts.
    CASE WHEN NOT isnan(return_of_all) THEN return_of_all END AS "return",
    -- Value of the reward of the whole episode as recorded; in statistics it counts where reward_counts.
    CASE WHEN NOT isnan(settled.reward) THEN settled.reward END AS reward,
    -- Whether the reward counts: the episode does, and its status is ok, or missing.
    counts AND settled.reward_status IN ('ok', 'missing') AS reward_counts,
    -- Whether the return counts: the episode does, and it is not the value of a reward that does not.
    counts AND (reward_counts OR settled.reward IS NULL OR "return" IS DISTINCT FROM settled.reward) AS return_counts,
    -- ok, partial, error, abstained or missing.
    settled.reward_status,
    -- pass or fail, of the reward.
    settled.verdict,
    -- Name of the reward spec.
    nullif(specs.spec.name, '') AS spec_name,
    -- Version of the reward spec.
    nullif(specs.spec.version, '') AS spec_version,
    -- Digest of the reward spec.
    nullif(specs.spec.sha256, '') AS spec_sha256,
    -- Name and version of the graders of the reward, then of those of the last rewards of its steps.
    coalesce(graders.graders, []) AS graders,
    -- Advantage: of the last annotation, else the episode's own, else that of the last group with advantages.
    CASE WHEN NOT isnan(settled.advantage) THEN settled.advantage END AS advantage,
    -- Number of environment steps.
    try_cast(settled.length AS BIGINT) AS length,
    -- Number of recorded steps.
    try_cast(settled.step_count AS BIGINT) AS steps,
    -- Number of tokens in the prompts of its steps; null without tokens.
    try_cast(tokens.prompt_tokens AS BIGINT) AS prompt_tokens,
    -- Number of tokens that the policy sampled; null without tokens.
    try_cast(tokens.completion_tokens AS BIGINT) AS completion_tokens,
    -- Mean log probability of these tokens, of the steps that state it, in nats.
    CASE WHEN isfinite(tokens.mean_logprob) THEN tokens.mean_logprob END AS mean_logprob,
    -- Number of calls of models below its steps, without calls of tools.
    coalesce(model_calls.number, 0) AS calls,
    -- Duration of these calls together, in seconds.
    coalesce(model_calls.nanoseconds, 0) / 1e9 AS call_seconds,
    -- Mean time to the first token of those of these calls that state it, in seconds.
    model_calls.first_chunk AS time_to_first_token,
    -- Time from start to end, in seconds; null while unfinished.
    CASE WHEN is_finished THEN (settled.end_time - settled.start_time) / 1e9 END AS duration,
    -- Cost, in US dollars.
    CASE WHEN NOT isnan("mttp.usage.cost_usd") THEN "mttp.usage.cost_usd" END AS cost_usd,
    -- Scores by component: of the reward of the episode if it has any or a spec, else summed over the last rewards of its steps.
    coalesce(component_scores.scores, MAP {}) AS components,
    -- Status of the components of the same rewards that are not ok, by name.
    coalesce(component_scores.statuses, MAP {}) AS component_statuses,
    -- Names of the checks that failed, of the same rewards.
    coalesce(checks.failed_checks, []) AS failed_checks,
    -- User-supplied numbers by name.
    coalesce(metrics.metrics, MAP {}) AS metrics,
    -- User-supplied values by name: the numbers, booleans and texts of up to 100 characters, as text.
    coalesce(labelled.labels, MAP {}) AS metadata,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce(faulty.faults, []) AS faults,
    -- Share of episodes like it that samplers keep, by the trace state of its root; null if it states none.
    settled.share AS sampling_share,
    -- Whether the recording has all spans of the episode.
    is_finished AND coalesce(whole.has_all_spans, false) AS complete,
    -- Span id of the root, 16 hex digits.
    root_span_id AS span_id,
    -- Index of the sub-environment in a vector environment, from 0.
    "mttp.env.index" AS env_index,
    -- Version of the policy at the last step.
    "mttp.policy.version.end" AS policy_version_end,
    -- Index of the update that made the policy.
    "mttp.policy.update_index" AS policy_update_index,
    -- Discount factor of the trainer.
    CASE WHEN NOT isnan("mttp.episode.discount") THEN "mttp.episode.discount" END AS discount,
    -- The critic's value of the final observation.
    CASE WHEN NOT isnan("mttp.episode.final_value") THEN "mttp.episode.final_value" END AS final_value,
    -- live, or batch if the times are those of a whole batch.
    coalesce("mttp.episode.timing", 'live') AS timing,
    -- Message of the exception that ended the episode.
    nullif(status_message, '') AS error_message,
    -- Values that were left out, as `attribute: reason`.
    coalesce("mttp.omissions", []) AS omissions,
    -- Trace id of the scoring or annotation with the reward.
    reward_trace_id,
    -- Span id of that scoring or annotation, 16 hex digits; null without a reward.
    reward_span_id,
    -- Text of the first step's observation, such as its messages; loaded where a query asks for it.
    texts.prompt,
    -- Text of the actions; loaded where a query asks for it.
    texts.completion,
    -- Other texts: later messages, arguments and results of tools, errors of steps, calls and graders; loaded where a query asks for it.
    exchanged.exchange
FROM settled
LEFT JOIN tokens USING (trace_id)
LEFT JOIN model_calls USING (trace_id)
LEFT JOIN component_scores USING (trace_id)
LEFT JOIN specs USING (trace_id)
LEFT JOIN checks USING (trace_id)
LEFT JOIN graders USING (trace_id)
LEFT JOIN metrics USING (trace_id)
LEFT JOIN labelled USING (trace_id)
LEFT JOIN faulty USING (trace_id)
LEFT JOIN whole USING (trace_id)
LEFT JOIN texts USING (trace_id)
LEFT JOIN exchanged USING (trace_id)
ORDER BY settled.start_time, settled.trace_id

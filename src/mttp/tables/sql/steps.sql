-- One row for each step of an episode, with later annotations.
WITH scores AS (
    SELECT
        trace_id, step_span_id,
        map_from_entries(list({'key': coalesce(grader, ''), 'value': value} ORDER BY rank)) AS scores
    FROM judgements
    WHERE is_current AND value IS NOT NULL AND step_span_id IS NOT NULL
    GROUP BY trace_id, step_span_id
),
latest AS (
    SELECT
        targets.trace_id, targets.step_span_id, targets."key",
        arg_max(coalesce(spans."mttp.annotation.value.json", 'null'), targets.rank) AS value
    FROM targets
    JOIN spans ON spans.trace_id = targets.note_trace_id AND spans.span_id = targets.note_span_id
    WHERE targets.kind = 'fact' AND targets.is_on_step AND targets.step_span_id IS NOT NULL
    GROUP BY targets.trace_id, targets.step_span_id, targets."key"
),
facts AS (
    SELECT trace_id, step_span_id, map_from_entries(list({'key': "key", 'value': value})) AS facts
    FROM latest
    GROUP BY trace_id, step_span_id
),
numbers AS (
    SELECT
        targets.trace_id, targets.step_span_id,
        arg_max("mttp.step.trained_reward", rank) FILTER (NOT isnan("mttp.step.trained_reward")) AS trained_reward,
        arg_max("mttp.step.value_estimate", rank) FILTER (NOT isnan("mttp.step.value_estimate")) AS value_estimate,
        arg_max("mttp.step.return_target", rank) FILTER (NOT isnan("mttp.step.return_target")) AS return_target,
        arg_max("mttp.step.advantage", rank) FILTER (NOT isnan("mttp.step.advantage")) AS advantage,
        arg_max("mttp.step.logprob", rank) FILTER (NOT isnan("mttp.step.logprob")) AS logprob
    FROM targets
    JOIN spans ON spans.trace_id = targets.note_trace_id AND spans.span_id = targets.note_span_id
    WHERE targets.kind = 'steps' AND targets.step_span_id IS NOT NULL
    GROUP BY targets.trace_id, targets.step_span_id
),
called AS (
    SELECT
        calls.trace_id, calls.caller_id,
        arg_min(calls.arguments, position) FILTER (operation <> 'execute_tool') AS arguments,
        arg_max(calls.result, position) FILTER (operation <> 'execute_tool') AS result,
        flatten(list(spans."mttp.faults" ORDER BY position) FILTER (
            spans."mttp.call.history_ranges" IS NOT NULL AND spans."mttp.faults" IS NOT NULL
        )) AS faults,
        flatten(list(spans."mttp.omissions" ORDER BY position) FILTER (
            spans."mttp.call.history_ranges" IS NOT NULL AND spans."mttp.omissions" IS NOT NULL
        )) AS omissions
    FROM calls
    JOIN spans ON spans.trace_id = calls.trace_id AND spans.span_id = calls.span_id
    GROUP BY calls.trace_id, calls.caller_id
),
annotated AS (
    SELECT
        spans.trace_id, spans.span_id, facts.facts,
        CAST(from_json(coalesce(spans."mttp.metadata.json", '{}'), '"MAP(VARCHAR, JSON)"') AS MAP(VARCHAR, VARCHAR))
            AS metadata,
        CAST(from_json(coalesce(spans."mttp.extra.json", '{}'), '"MAP(VARCHAR, JSON)"') AS MAP(VARCHAR, VARCHAR))
            AS extra,
        list_filter(
            [
                {'key': 'mttp.step.trained_reward', 'value': CASE WHEN numbers.trained_reward IS NOT NULL
                    THEN spans."mttp.step.trained_reward" END},
                {'key': 'mttp.step.value_estimate', 'value': CASE WHEN numbers.value_estimate IS NOT NULL
                    THEN spans."mttp.step.value_estimate" END},
                {'key': 'mttp.step.return_target', 'value': CASE WHEN numbers.return_target IS NOT NULL
                    THEN spans."mttp.step.return_target" END},
                {'key': 'mttp.step.advantage', 'value': CASE WHEN numbers.advantage IS NOT NULL
                    THEN spans."mttp.step.advantage" END},
                {'key': 'mttp.step.logprob', 'value': CASE WHEN numbers.logprob IS NOT NULL
                    THEN spans."mttp.step.logprob" END}
            ],
            lambda item: item.value IS NOT NULL
        ) AS replaced
    FROM (SELECT trace_id, step_span_id FROM facts UNION SELECT trace_id, step_span_id FROM numbers) AS noted
    JOIN spans ON spans.trace_id = noted.trace_id AND spans.span_id = noted.step_span_id
    LEFT JOIN facts ON facts.trace_id = noted.trace_id AND facts.step_span_id = noted.step_span_id
    LEFT JOIN numbers ON numbers.trace_id = noted.trace_id AND numbers.step_span_id = noted.step_span_id
),
merged AS (
    SELECT
        trace_id, span_id,
        map_concat(metadata, coalesce(facts, MAP {})) AS metadata,
        map_concat(
            extra,
            map_from_entries(list_transform(
                list_filter(map_entries(metadata), lambda item: map_contains(coalesce(facts, MAP {}), item."key")),
                lambda item: {'key': 'mttp.metadata.' || item."key", 'value': item.value}
            )),
            map_from_entries(list_transform(
                replaced,
                lambda item: {
                    'key': item."key",
                    'value': CASE WHEN isfinite(item.value) THEN CAST(to_json(item.value) AS VARCHAR) END
                }
            ))
        ) AS extra
    FROM annotated
),
texts AS (
    SELECT
        trace_id, span_id,
        '{' || array_to_string(list_transform(
            map_entries(metadata),
            lambda item: CAST(to_json(item."key") AS VARCHAR) || ': ' || coalesce(item.value, 'null')
        ), ', ') || '}' AS metadata,
        '{' || array_to_string(list_transform(
            map_entries(extra),
            lambda item: CAST(to_json(item."key") AS VARCHAR) || ': ' || coalesce(item.value, 'null')
        ), ', ') || '}' AS extra
    FROM merged
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    played.trace_id,
    -- Id of the run of the episode.
    roots.run_id,
    -- Index in the episode, or among the steps of the agent, from 0.
    played."index",
    -- Id of the agent; null in an episode without several.
    played.agent,
    -- Observation before the action, JSON; else the messages of the step's first model call.
    nullif(CASE
        WHEN spans."mttp.observation.value.json" IS NULL THEN called.arguments
        ELSE spans."mttp.observation.value.json"
    END, '{}') AS observation,
    -- The action, JSON; else the answer of the step's last model call.
    nullif(CASE
        WHEN spans."mttp.action.value.json" IS NULL THEN called.result
        ELSE spans."mttp.action.value.json"
    END, '{}') AS action,
    -- Rendered picture before the action, a data URL; one without data repeats that of an earlier step.
    spans."mttp.step.frame" AS frame,
    -- The reward; null if none was given or the value was not a finite number.
    spans."mttp.step.reward" AS reward,
    -- ok, error, abstained or missing.
    CASE
        WHEN spans."mttp.step.reward" IS NOT NULL AND coalesce(spans."mttp.step.reward_status", 'missing') = 'missing'
        THEN 'ok'
        ELSE coalesce(spans."mttp.step.reward_status", 'missing')
    END AS reward_status,
    -- The invalid reward as text, if a reward was given that is not a finite number.
    spans."mttp.step.reward_raw" AS reward_raw,
    -- The reward that the trainer used, if a library changed it.
    coalesce(numbers.trained_reward, spans."mttp.step.trained_reward") AS trained_reward,
    -- Whether this step ended the task.
    spans."mttp.step.terminated" AS terminated,
    -- Whether a limit cut the episode off after this step.
    spans."mttp.step.truncated" AS truncated,
    -- The critic's value of the observation.
    coalesce(numbers.value_estimate, spans."mttp.step.value_estimate") AS value_estimate,
    -- Training target of the critic.
    coalesce(numbers.return_target, spans."mttp.step.return_target") AS return_target,
    -- Advantage of the action, as computed by the trainer.
    coalesce(numbers.advantage, spans."mttp.step.advantage") AS advantage,
    -- Log probability of the action, in nats.
    coalesce(numbers.logprob, spans."mttp.step.logprob") AS logprob,
    -- Number of prompt tokens of the step's token block.
    spans."mttp.token.prompt_count" AS prompt_tokens,
    -- Number of completion tokens of the step's token block.
    spans."mttp.token.count" AS completion_tokens,
    -- Mean log probability of the sampled tokens, in nats.
    spans."mttp.token.mean_logprob" AS mean_logprob,
    -- User-supplied numbers by name.
    coalesce(spans."mttp.metric", MAP {}) AS metrics,
    -- User-supplied values by name, JSON.
    nullif(coalesce(texts.metadata, spans."mttp.metadata.json"), '{}') AS metadata,
    -- Class of the exception that ended the step.
    spans."error.type" AS error_type,
    -- Message of that exception.
    nullif(spans.status_message, '') AS error_message,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce(spans."mttp.faults", []) || coalesce(called.faults, []) AS faults,
    -- Values that were left out, as `attribute: reason`.
    coalesce(spans."mttp.omissions", []) || coalesce(called.omissions, []) AS omissions,
    -- Attributes that this version does not know, and recorded values that an annotation replaced, JSON.
    nullif(coalesce(texts.extra, spans."mttp.extra.json"), '{}') AS extra,
    -- Span id of the step, 16 hex digits; empty for a step in columns.
    CASE WHEN played.is_packed THEN '' ELSE played.span_id END AS span_id,
    -- Time of the observation, in nanoseconds since the Unix epoch.
    spans.start_time,
    -- Time of the reward, in nanoseconds since the Unix epoch.
    spans.end_time,
    -- Current score by grader, annotations included; "" for an annotation without a grader.
    coalesce(scores.scores, MAP {}) AS scores
FROM played
JOIN spans USING (trace_id, span_id)
JOIN roots USING (trace_id)
LEFT JOIN called ON called.trace_id = played.trace_id AND called.caller_id = played.span_id
LEFT JOIN numbers ON numbers.trace_id = played.trace_id AND numbers.step_span_id = played.span_id
LEFT JOIN texts ON texts.trace_id = played.trace_id AND texts.span_id = played.span_id
LEFT JOIN scores ON scores.trace_id = played.trace_id AND scores.step_span_id = played.span_id
ORDER BY roots.start_time, played.trace_id, played.position

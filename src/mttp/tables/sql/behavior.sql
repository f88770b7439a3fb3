-- One row for each episode with steps: what its policy was given, and what it did.
WITH answered AS (
    SELECT
        called.step,
        arg_min("observation_text", path) AS observation_text,
        arg_max("action_text", path) AS action_text
    FROM called
    JOIN spans USING (trace_id, place)
    WHERE operation <> 'execute_tool'
    GROUP BY called.step
),
acts AS (
    SELECT
        spans.trace_id,
        {
            'index': coalesce("mttp.step.index", "mttp.steps.first_index", 0),
            'start': spans.start_time,
            'place': spans.place
        } AS "order",
        "mttp.token.count" IS NOT NULL OR "mttp.token.encoding" IS NOT NULL AS has_tokens,
        coalesce(spans."observation_text", answered.observation_text) AS observation_text,
        coalesce(spans."action_text", answered.action_text) AS action_text,
        CASE WHEN len("token_ids") > 0 THEN hash("token_ids") END AS tokens,
        "log_ratio_sums" AS ratio,
        "entropy_sums" AS entropy,
        coalesce("mttp.step.reward_status" = 'error', "mttp.steps.reward_errors" > 0, false) AS has_failed
    FROM spans
    LEFT JOIN answered ON answered.step = spans.place
    WHERE type IN ('step', 'steps') AND NOT contains(spans.span_id, ':')
),
whole AS (
    SELECT
        trace_id,
        arg_min(has_tokens OR action_text IS NOT NULL, "order") AS writes,
        arg_min({'text': observation_text}, "order").text AS prompt,
        string_agg(action_text, chr(10) ORDER BY "order") AS completion,
        list(tokens ORDER BY "order") FILTER (tokens IS NOT NULL) AS tokens,
        bool_or(has_failed) AS has_failed,
        CASE WHEN count(ratio) > 0 THEN [fsum(ratio[1]), fsum(ratio[2]), fsum(ratio[3]), fsum(ratio[4])] END
            AS log_ratio_sums,
        fsum(entropy[1]) / fsum(entropy[2]) AS entropy
    FROM acts
    GROUP BY trace_id
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    trace_id,
    -- Whether its first action is text or has tokens.
    writes,
    -- Text of its first observation; null if that is no text.
    prompt,
    -- Text of its actions without tokens; null without any.
    completion,
    -- Number of characters of `completion`.
    length(completion) AS characters,
    -- Equal for equal token ids of all steps, else for equal words; null without either.
    CASE
        WHEN len(tokens) > 0 THEN hash(tokens)
        WHEN completion ~ '\S' THEN hash(regexp_replace(trim(completion, ' ' || chr(9) || chr(10) || chr(13)), '\s+', ' ', 'g'))
    END AS answer,
    -- Whether the reward of a step failed.
    has_failed,
    -- Sums over sampled tokens for k1, k2 and k3 of the divergence from the reference, and the number of tokens.
    log_ratio_sums,
    -- Mean entropy of its tokens, in nats.
    entropy
FROM whole

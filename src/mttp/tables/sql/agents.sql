-- One row for each agent of an episode with several, also of one that only its steps name.
WITH own AS (
    SELECT
        trace_id,
        "mttp.agent.id" AS agent,
        coalesce("mttp.segment.id", '') AS part,
        row_number() OVER (
            PARTITION BY trace_id, "mttp.agent.id"
            ORDER BY coalesce("mttp.segment.id", '') <> '', start_time, end_time, place
        ) AS number,
        min([start_time, end_time, place]) OVER (PARTITION BY trace_id, "mttp.agent.id") AS first_place,
        spans.* EXCLUDE (trace_id)
    FROM spans
    WHERE type = 'agent' AND "mttp.agent.id" IS NOT NULL
),
spanned AS (
    SELECT
        trace_id,
        agent,
        any_value(first_place) AS first_place,
        first(part ORDER BY number) AS owner,
        list_distinct(list(part)) AS parts,
        arg_min("gen_ai.agent.name", number) AS name,
        arg_min("mttp.policy.id", number) AS policy,
        arg_min("mttp.policy.version.start", number) AS policy_version_start,
        arg_min("mttp.policy.version.end", number) AS policy_version_end,
        arg_min("mttp.agent.return", number) AS stated_return,
        arg_min("mttp.agent.length", number) AS stated_length,
        arg_min("mttp.agent.terminated", number) AS terminated,
        arg_min("mttp.agent.truncated", number) AS truncated,
        arg_min("mttp.advantage", number) AS advantage,
        list_reduce(
            list("mttp.metric" ORDER BY number DESC) FILTER ("mttp.metric" IS NOT NULL),
            lambda others, own: map_concat(others, own)
        ) AS metrics,
        list_reduce(
            list(
                CAST(from_json("mttp.metadata.json", '"MAP(VARCHAR, JSON)"') AS MAP(VARCHAR, VARCHAR))
                ORDER BY number DESC
            ) FILTER ("mttp.metadata.json" IS NOT NULL),
            lambda others, own: map_concat(others, own)
        ) AS metadata,
        arg_min("error.type", number) AS error_type,
        arg_min(nullif(status_message, ''), number) AS error_message,
        flatten(list(coalesce("mttp.faults", []) ORDER BY number)) AS faults,
        flatten(list(coalesce("mttp.omissions", []) ORDER BY number)) AS omissions,
        first(span_id ORDER BY number) AS span_id,
        first(start_time ORDER BY number) AS start_time,
        max(end_time) AS end_time
    FROM own
    GROUP BY trace_id, agent
),
stepped AS (
    SELECT
        played.trace_id,
        played.agent,
        min(played.position) AS first_step,
        list_distinct(list(coalesce(spans."mttp.segment.id", ''))) AS parts,
        count(*) AS length,
        fsum(spans."mttp.step.reward") AS total,
        bool_and(
            spans."mttp.step.reward" IS NOT NULL OR spans."mttp.step.reward_status" IS DISTINCT FROM 'error'
        ) AS is_known
    FROM played
    JOIN spans USING (trace_id, span_id)
    WHERE played.agent IS NOT NULL
    GROUP BY played.trace_id, played.agent
),
known AS (
    SELECT
        *,
        coalesce(spanned.owner, '') AS part,
        list_distinct(coalesce(spanned.parts, []) || coalesce(stepped.parts, [])) AS all_parts
    FROM spanned
    FULL JOIN stepped USING (trace_id, agent)
),
scored AS (
    SELECT
        known.trace_id,
        known.agent,
        judgements.value,
        judgements.status,
        coalesce(spans."mttp.segment.id", '') AS scored_part,
        judgements.value IS NOT NULL OR judgements.status = 'error' AS states_total,
        CASE
            WHEN scored_part <> known.part THEN states_total::INTEGER
            WHEN states_total AND row_number() OVER (
                PARTITION BY known.trace_id, known.agent, scored_part ORDER BY judgements.position DESC
            ) = 1 THEN 2
            ELSE 0
        END AS precedence,
        judgements.position
    FROM known
    JOIN judgements
        ON judgements.trace_id = known.trace_id
        AND judgements.agent = known.agent
        AND judgements.source = 'reward'
        AND judgements.step_span_id IS NULL
    JOIN spans ON spans.trace_id = judgements.span_trace_id AND spans.span_id = judgements.span_id
),
judged AS (
    SELECT
        trace_id,
        agent,
        unnest(arg_max(
            {'value': value, 'status': status, 'scored_part': scored_part, 'states_total': states_total},
            [precedence, position]
        ))
    FROM scored
    GROUP BY trace_id, agent
),
settled AS (
    SELECT
        known.*,
        judged.value,
        judged.status,
        coalesce(judged.states_total, false) AS states_total,
        judged.scored_part,
        len(all_parts) > 1 AND list_contains(all_parts, known.part) AS is_of_several
    FROM known
    LEFT JOIN judged USING (trace_id, agent)
)
SELECT
    -- Trace id of the episode, 32 hex digits.
    settled.trace_id,
    -- Id of the run of the episode.
    roots.run_id,
    -- Id of the agent, unique in the episode.
    agent AS id,
    -- Name of the agent.
    name,
    -- Id of the agent's policy.
    policy,
    -- Version of the policy at the agent's first step.
    policy_version_start,
    -- Version of the policy at the agent's last step.
    policy_version_end,
    -- Return: the total of the agent's scoring, else the sum of its step rewards; null if unknown.
    CASE
        WHEN states_total AND (is_of_several OR scored_part <> part) THEN value
        WHEN NOT is_of_several THEN stated_return
        WHEN is_known AND isfinite(total) THEN total
    END AS "return",
    -- Number of steps of the agent.
    CASE WHEN is_of_several THEN coalesce(length, 0) ELSE coalesce(stated_length, length, 0) END AS length,
    -- Whether the task ended for the agent.
    terminated,
    -- Whether a limit cut the agent off.
    truncated,
    -- Advantage of the agent, if it was known before the agent's end.
    advantage,
    -- User-supplied numbers by name.
    coalesce(metrics, MAP {}) AS metrics,
    -- User-supplied values by name, JSON.
    '{' || array_to_string(list_transform(
        map_entries(metadata),
        lambda item: CAST(to_json(item."key") AS VARCHAR) || ': ' || coalesce(item.value, 'null')
    ), ', ') || '}' AS metadata,
    -- Class of the exception that ended the agent's part.
    error_type,
    -- Message of that exception.
    error_message,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce(faults, []) AS faults,
    -- Values that were left out, as `attribute: reason`.
    coalesce(omissions, []) AS omissions,
    -- Span id of the agent, 16 hex digits; empty without a span.
    coalesce(settled.span_id, '') AS span_id,
    -- Start of the agent's part, in nanoseconds since the Unix epoch.
    settled.start_time,
    -- End of the agent's part, in nanoseconds since the Unix epoch.
    settled.end_time,
    -- Value of the scoring of the agent that counts, usually its last.
    value AS reward,
    -- ok, partial, error, abstained or missing.
    coalesce(status, 'missing') AS reward_status
FROM settled
JOIN roots USING (trace_id)
ORDER BY roots.start_time, settled.trace_id, first_place NULLS LAST, first_step

-- One row for each scoring of an episode, an agent or a step, without its components.
WITH agents AS (
    SELECT
        trace_id, span_id,
        "mttp.agent.id" AS agent,
        row_number() OVER (ORDER BY start_time, end_time, place) AS span_order,
        min([start_time, end_time, place]) OVER (PARTITION BY trace_id, "mttp.agent.id") AS agent_order
    FROM spans
    WHERE type = 'agent'
),
rewards AS (
    SELECT
        spans.trace_id, spans.span_id, spans.start_time, spans.end_time, spans.place, spans.parent_id,
        "mttp.grader.name" AS grader,
        "mttp.reward.value" AS value,
        "mttp.reward.status" AS status
    FROM spans
    WHERE spans.type = 'reward'
),
scored AS (
    SELECT
        rewards.trace_id, rewards.trace_id AS span_trace_id, rewards.span_id,
        'reward' AS source, NULL AS revision, NULL::BIGINT[] AS note_order,
        0 AS target, NULL AS target_order, NULL AS step_span_id, NULL::VARCHAR AS agent, NULL AS stated_index,
        [rewards.start_time, rewards.end_time, rewards.place] AS "order",
        grader, value, status, rewards.start_time, rewards.end_time
    FROM rewards
    JOIN roots USING (trace_id)
    WHERE rewards.parent_id = roots.span_id
    UNION ALL
    SELECT
        rewards.trace_id, rewards.trace_id, rewards.span_id,
        'reward', NULL, NULL,
        1, agents.agent_order, NULL, agents.agent, NULL,
        [rewards.start_time, agents.span_order, rewards.end_time, rewards.place],
        grader, value, status, rewards.start_time, rewards.end_time
    FROM rewards
    JOIN agents ON agents.trace_id = rewards.trace_id AND agents.span_id = rewards.parent_id
    UNION ALL
    SELECT
        rewards.trace_id, rewards.trace_id, rewards.span_id,
        'reward', NULL, NULL,
        2, NULL, rewards.parent_id, NULL, NULL,
        [rewards.start_time, rewards.end_time, rewards.place],
        grader, value, status, rewards.start_time, rewards.end_time
    FROM rewards
    JOIN played
        ON played.trace_id = rewards.trace_id
        AND played.span_id = rewards.parent_id
        AND NOT played.is_packed
    UNION ALL
    SELECT
        spans.trace_id, spans.trace_id, spans.span_id,
        'step', NULL, NULL,
        2, NULL, spans.span_id, NULL, NULL,
        NULL,
        NULL, "mttp.step.reward", "mttp.step.reward_status", spans.end_time, spans.end_time
    FROM spans
    SEMI JOIN played ON played.trace_id = spans.trace_id AND played.span_id = spans.span_id
    WHERE spans.type = 'step' AND ("mttp.reward.score" IS NOT NULL OR "mttp.reward.component_name" IS NOT NULL)
    UNION ALL
    SELECT
        targets.trace_id, targets.note_trace_id, targets.note_span_id,
        'annotation', targets.revision, [targets.rank],
        CASE WHEN targets.is_on_step THEN 2 ELSE 0 END, NULL, targets.step_span_id, NULL, targets.step_index,
        NULL,
        spans."mttp.grader.name",
        coalesce(spans."mttp.reward.value", spans."mttp.annotation.value.number"),
        spans."mttp.reward.status", spans.start_time, spans.end_time
    FROM targets
    JOIN spans ON spans.trace_id = targets.note_trace_id AND spans.span_id = targets.note_span_id
    WHERE targets.kind = 'score'
),
placed AS (
    SELECT
        scored.*,
        roots.run_id,
        coalesce(played."index", scored.stated_index) AS step_index,
        coalesce(scored.agent, played.agent) AS played_by,
        played.position AS step_position,
        roots.start_time AS episode_start
    FROM scored
    JOIN roots USING (trace_id)
    LEFT JOIN played ON played.trace_id = scored.trace_id AND played.span_id = scored.step_span_id
)
SELECT
    -- Number that orders the scorings of all episodes.
    row_number() OVER (
        ORDER BY
            episode_start, trace_id, target, target_order, step_position NULLS LAST,
            note_order NULLS FIRST, source = 'step', "order"
    ) AS rank,
    -- Trace id of the episode, 32 hex digits.
    trace_id,
    -- Id of the run of the episode.
    run_id,
    -- Index of the scored step; null for a scoring of the whole episode or agent.
    step_index,
    -- Id of the agent; null in an episode without several.
    played_by AS agent,
    -- Position among the scorings of its target in order of start, from 0; null for an annotation.
    CASE
        WHEN source <> 'annotation' THEN row_number() OVER (
            PARTITION BY trace_id, target, agent, step_span_id
            ORDER BY source = 'annotation', source = 'step', "order"
        ) - 1
    END AS position,
    -- Revision of the annotation, of which the highest of a grader counts; null for a scoring of the run.
    revision,
    -- Whether it is the current score of its grader for its target; false without a grader.
    (grader IS NOT NULL OR source = 'annotation')
    AND (target <> 2 OR step_position IS NOT NULL)
    AND row_number() OVER (
        PARTITION BY trace_id, target, agent, step_span_id, coalesce(grader, ''), grader IS NULL AND source <> 'annotation'
        ORDER BY note_order DESC NULLS LAST, "order" DESC
    ) = 1 AS is_current,
    -- Name of the grader.
    grader,
    -- Origin: a span of type reward, a step that has components itself, or an annotation.
    source,
    -- Trace id of that span.
    span_trace_id,
    -- Id of its row in `spans`.
    span_id,
    -- Id of the scored step's row in `spans`; null for others.
    step_span_id,
    -- The reward, a number; null if there is none.
    value,
    -- ok, partial, error, abstained or missing.
    CASE
        WHEN value IS NOT NULL AND coalesce(status, 'missing') = 'missing' THEN 'ok'
        ELSE coalesce(status, 'missing')
    END AS status,
    -- Start in nanoseconds since the Unix epoch.
    start_time,
    -- End in nanoseconds since the Unix epoch.
    end_time
FROM placed

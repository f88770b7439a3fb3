-- One row for each call of a model or a tool: by the policy in a step, by a grader, or elsewhere in a run.
WITH RECURSIVE nodes AS (
    SELECT
        trace_id, span_id, parent_id, start_time, end_time, place,
        "mttp.run.id" IS NOT NULL AS is_ours,
        "gen_ai.operation.name" IS NOT NULL
            AND type IN ('', 'call')
            AND (
                "mttp.run.id" IS NOT NULL
                OR "gen_ai.operation.name" IN (
                    'chat', 'text_completion', 'generate_content', 'embeddings', 'retrieval', 'execute_tool'
                )
            ) AS is_call,
        NOT contains(span_id, ':') AS is_span
    FROM spans
),
links AS (
    SELECT * FROM nodes WHERE is_span AND (is_call OR NOT is_ours)
),
reached AS (
    SELECT
        links.*, links.parent_id AS caller_id,
        [{'start': links.start_time, 'end': links.end_time, 'place': links.place}] AS path
    FROM links
    JOIN nodes AS callers ON callers.trace_id = links.trace_id AND callers.span_id = links.parent_id
    WHERE callers.is_ours AND NOT callers.is_call
    UNION ALL
    SELECT
        links.*, reached.caller_id,
        reached.path || [{'start': links.start_time, 'end': links.end_time, 'place': links.place}]
    FROM reached
    JOIN links ON links.trace_id = reached.trace_id AND links.parent_id = reached.span_id
    WHERE NOT reached.is_call
),
called AS (
    SELECT trace_id, span_id, caller_id, path FROM reached WHERE is_call
    UNION ALL
    SELECT
        links.trace_id, links.span_id, NULL,
        [{'start': links.start_time, 'end': links.end_time, 'place': links.place}]
    FROM links
    ANTI JOIN nodes ON nodes.trace_id = links.trace_id AND nodes.span_id = links.parent_id
    WHERE links.is_call AND links.is_ours
),
distinct_calls AS (
    SELECT called.*, row_number() OVER (PARTITION BY called.trace_id, caller_id ORDER BY path) - 1 AS position
    FROM called
    JOIN spans USING (trace_id, span_id)
    QUALIFY
        spans."mttp.run.id" IS NOT NULL
        OR spans."gen_ai.response.id" IS NULL
        OR row_number() OVER (
            PARTITION BY
                called.trace_id, caller_id, spans."gen_ai.response.id", spans."mttp.run.id" IS NOT NULL
            ORDER BY path
        ) = 1
)
SELECT
    -- Trace id, 32 hex digits.
    spans.trace_id,
    -- Id of the run.
    coalesce(roots.run_id, spans."mttp.run.id", callers."mttp.run.id") AS run_id,
    -- Index of the step that the call belongs to; null outside of steps.
    coalesce(spans."mttp.step.index", callers."mttp.step.index") AS step_index,
    -- Id of the agent; null in an episode without several.
    coalesce(spans."mttp.agent.id", callers."mttp.agent.id") AS agent,
    -- Operation: chat, text_completion, execute_tool, ...
    spans."gen_ai.operation.name" AS operation,
    -- Name of the requested model or of the tool.
    CASE operation WHEN 'execute_tool' THEN spans."gen_ai.tool.name" ELSE spans."gen_ai.request.model" END AS name,
    -- Id of the response or of the tool call.
    CASE operation WHEN 'execute_tool' THEN spans."gen_ai.tool.call.id" ELSE spans."gen_ai.response.id" END AS id,
    -- Name of the model that generated the response; null for a tool.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.response.model" END AS model,
    -- Provider of the model; null for a tool.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.provider.name" END AS provider,
    -- Number of input tokens.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.usage.input_tokens" END AS input_tokens,
    -- Number of output tokens.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.usage.output_tokens" END AS output_tokens,
    -- Number of output tokens that were reasoning.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.usage.reasoning.output_tokens" END
        AS reasoning_tokens,
    -- Finish reason of each choice.
    CASE
        WHEN operation <> 'execute_tool' THEN coalesce(spans."gen_ai.response.finish_reasons", [])
        ELSE []
    END AS finish_reasons,
    -- Class of the exception that ended the call.
    spans."error.type" AS error_type,
    -- Message of that exception.
    nullif(spans.status_message, '') AS error_message,
    -- Start of the call, in nanoseconds since the Unix epoch.
    spans.start_time,
    -- End of the call, in nanoseconds since the Unix epoch.
    spans.end_time,
    -- Duration of the call in seconds.
    (spans.end_time - spans.start_time) / 1e9 AS duration,
    -- Seconds from the request to the first chunk of a streamed response.
    CASE WHEN operation <> 'execute_tool' THEN spans."gen_ai.response.time_to_first_chunk" END
        AS time_to_first_chunk,
    -- Name of the grader or component that made the call; null for a call of the policy.
    coalesce(
        spans."mttp.grader.name",
        CASE callers.type
            WHEN 'reward' THEN coalesce(callers."mttp.grader.name", callers.name)
            WHEN 'annotate' THEN coalesce(callers."mttp.grader.name", callers.name)
            WHEN 'grade' THEN coalesce(callers."mttp.component.name", callers."mttp.grader.name", callers.name)
        END
    ) AS grader,
    -- Messages that the model was given, or arguments of the tool, JSON.
    CASE operation
        WHEN 'execute_tool' THEN spans."gen_ai.tool.call.arguments.json"
        ELSE spans."gen_ai.input.messages.json"
    END AS arguments,
    -- Answer of the model, or result of the tool, JSON.
    CASE operation
        WHEN 'execute_tool' THEN spans."gen_ai.tool.call.result.json"
        ELSE spans."gen_ai.output.messages.json"
    END AS result,
    -- Span id of the call, 16 hex digits.
    spans.span_id,
    -- Span id of the step, scoring, grade or other span that made the call; null if it was not found.
    caller_id,
    -- Position among the calls of that span, from 0.
    position
FROM distinct_calls
JOIN spans USING (trace_id, span_id)
LEFT JOIN spans AS callers
    ON callers.trace_id = distinct_calls.trace_id AND callers.span_id = distinct_calls.caller_id
LEFT JOIN roots ON roots.trace_id = distinct_calls.trace_id
ORDER BY coalesce(roots.start_time, spans.start_time), spans.trace_id, path

-- One row for each episode with a scoring of the whole: the owner's last counts if it states a total, else the last of
-- others that does, else the last.
WITH totals AS (
    SELECT
        roots.trace_id,
        spans.place,
        coalesce("mttp.segment.id", '') AS part,
        states_total,
        CASE
            WHEN NOT states_total THEN 0
            WHEN part <> '' THEN 1
            WHEN row_number() OVER (
                PARTITION BY roots.trace_id, part = ''
                ORDER BY spans.start_time DESC, spans.end_time DESC, spans.place DESC
            ) = 1 THEN 2
            ELSE 0
        END AS precedence,
        (spans.start_time, spans.end_time, spans.place) AS "order"
    FROM roots
    JOIN (
        SELECT
            *,
            "mttp.reward.value" IS NOT NULL OR coalesce("mttp.reward.status" = 'error', false) AS states_total
        FROM spans
        WHERE type = 'reward'
    ) AS spans
        ON roots.trace_id = spans.trace_id AND roots.span_id = spans.parent_id
)
SELECT
    -- Trace id, 32 hex digits.
    trace_id,
    -- Place of the scoring in `spans`.
    place,
    -- Id of the process's part; empty for that of the process that started the episode.
    part,
    -- Whether it states a total.
    states_total
FROM totals
QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY precedence DESC, "order" DESC) = 1

-- One row for each process's part of an episode: its spans that were found, and the number that it recorded.
SELECT
    -- Trace id, 32 hex digits.
    trace_id,
    -- Id of the part; null for that of the process that started the episode.
    "mttp.segment.id" AS segment,
    -- Number of spans that were found; a block of steps counts as its steps.
    sum(CASE WHEN "mttp.steps.count" > 0 THEN "mttp.steps.count" ELSE 1 END) AS found,
    -- Number of spans that it recorded; null if its end was not found.
    CASE
        WHEN coalesce("mttp.segment.id", '') = ''
            THEN arg_min(coalesce("mttp.episode.span_count", 0), place) FILTER (type = 'episode')
        ELSE arg_min(coalesce("mttp.segment.span_count", 0), place) FILTER (type = 'segment')
    END AS recorded
FROM spans
WHERE "mttp.episode.id" IS NOT NULL AND "mttp.run.id" IS NOT NULL AND NOT contains(span_id, ':')
GROUP BY trace_id, "mttp.segment.id"

-- Each span once: of its copies, which have the same name and times as the first, the one that a transport left most
-- in.
SELECT * EXCLUDE (is_copy) REPLACE (min(place) OVER copies AS place)
FROM (
    SELECT
        *,
        (name, start_time, end_time) = first_value((name, start_time, end_time)) OVER (
            PARTITION BY trace_id, coalesce(copy_of, span_id) ORDER BY place
        ) AS is_copy
    FROM arrivals
)
WINDOW copies AS (PARTITION BY trace_id, coalesce(copy_of, span_id))
QUALIFY
    row_number() OVER (
        PARTITION BY trace_id, coalesce(copy_of, span_id)
        ORDER BY is_copy DESC, omitted, size DESC, place
    ) = 1
ORDER BY place

-- Each span once: of its copies, which have the same name and times as the first, the one that a transport left most
-- in.
SELECT arrivals.* REPLACE (chosen.first_place AS place)
FROM arrivals
JOIN (
    SELECT place, min(place) OVER copies AS first_place
    FROM (
        SELECT
            place,
            trace_id,
            coalesce(copy_of, span_id) AS copy,
            omitted,
            size,
            (name, start_time, end_time) = first_value((name, start_time, end_time)) OVER (
                PARTITION BY trace_id, copy ORDER BY place
            ) AS is_copy
        FROM arrivals
    )
    WINDOW copies AS (PARTITION BY trace_id, copy)
    QUALIFY
        row_number() OVER (
            PARTITION BY trace_id, copy
            ORDER BY is_copy DESC, omitted, size DESC, place
        ) = 1
) AS chosen
    USING (place)
ORDER BY chosen.first_place

-- Each span once: of several copies the one that a transport left most in.
SELECT * EXCLUDE (place)
FROM arrivals
QUALIFY row_number() OVER (PARTITION BY trace_id, span_id ORDER BY omitted, size DESC, place) = 1
ORDER BY place

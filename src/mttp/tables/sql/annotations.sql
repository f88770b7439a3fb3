-- One row for each annotation, also of one that a later one replaces, and of one whose episode was not found.
SELECT
    -- score, outcome, advantage, label, comment, preference, steps, or fact for a user-supplied key.
    notes.kind,
    -- The kind, or the user-supplied key of a fact.
    notes."key",
    -- The value, JSON; null for a preference, for a score without a number, and for numbers of several steps.
    CASE WHEN NOT is_of_several THEN spans."mttp.annotation.value.json" END AS value,
    -- The value, if it is a number.
    spans."mttp.annotation.value.number" AS number,
    -- Trace id of the annotated episode, 32 hex digits; for a preference, of the chosen one.
    notes.episode,
    -- Trace ids of the rejected episodes, for a preference.
    notes.rejected,
    -- Index of the annotated step, or of the first of several; null for the whole episode.
    CASE WHEN is_of_several THEN spans."mttp.steps.first_index" ELSE notes.step END AS step,
    -- Span id of the annotated step, 16 hex digits; empty if unknown.
    notes.step_span_id,
    -- Source: a person or a program.
    spans."mttp.annotation.source" AS annotated_by,
    -- The annotation of a key with the highest revision wins; by default nanoseconds since the Unix epoch.
    notes.revision,
    -- Explanation of the value.
    spans."gen_ai.evaluation.explanation" AS explanation,
    -- How its episode was chosen: random, tail, disagreement or hand; null if unknown.
    spans."mttp.annotation.selection" AS selection,
    -- Probability of this draw; null if not every candidate could be drawn.
    spans."mttp.annotation.selection_probability" AS selection_probability,
    -- Number of episodes among which it was drawn.
    spans."mttp.annotation.candidates" AS candidates,
    -- Id of the run that recorded the annotation.
    coalesce(spans."mttp.run.id", '') AS run_id,
    -- Faults in the recorded values, as `kind: detail`.
    coalesce(spans."mttp.faults", []) AS faults,
    -- Attributes that this version does not know, JSON.
    spans."mttp.extra.json" AS extra,
    -- Trace id of the annotation, 32 hex digits.
    notes.trace_id,
    -- Span id of the annotation, 16 hex digits; that of its scoring in `scorings`.
    notes.span_id,
    -- Time of the annotation, in nanoseconds since the Unix epoch.
    spans.start_time,
    -- A microsecond later.
    spans.end_time
FROM notes
JOIN spans USING (trace_id, span_id)
WHERE NOT contains(notes.span_id, ':')
ORDER BY spans.start_time, notes.span_id, notes.place

SELECT trace_id FROM spans WHERE false

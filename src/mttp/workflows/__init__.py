"""
Applications of the other rooms: they record, read, score and send at once.

Their public names are those of the room that a user looks in, such as `mttp.evaluate`, `mttp.study.rescore`
and `mttp.reading.write_curves`.
"""

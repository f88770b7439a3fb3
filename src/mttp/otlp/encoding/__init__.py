"""
Encodes spans, in this process or in a worker process.

Nothing is imported here, so that the worker starts quickly.
"""

"""
Encoding of spans, in this process and in an encoding process.

This file imports nothing, so that the encoding process starts quickly.
"""

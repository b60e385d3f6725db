"""A cluster whose data is durable in a bucket: the objects, the write-ahead logs of sessions, and the
rebuilding of a data directory.
"""

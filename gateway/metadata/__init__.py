"""Topics, configurations, producer-id blocks and access control entries: an image rebuilt by replaying
records, and decisions that return records.

Pure: time and fresh ids come in as arguments; nothing here waits, writes or reads a clock.
"""

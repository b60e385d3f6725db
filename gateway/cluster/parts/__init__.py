"""The history of partitions in the bucket: parts of segment files, and the manifest of each partition that
names its parts.
"""

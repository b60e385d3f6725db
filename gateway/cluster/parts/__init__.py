"""The history of partitions in the bucket: parts of segment files, and each partition's manifest of them."""

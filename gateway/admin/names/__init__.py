"""The producer names that partitions remember."""

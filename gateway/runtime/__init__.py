"""What runs in time: the clock, group commit, partitions with their waiters, the metadata log, background jobs."""

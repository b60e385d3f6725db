"""The parts that depend on time: clock, group commit, partitions, waiters, metadata log, background jobs."""

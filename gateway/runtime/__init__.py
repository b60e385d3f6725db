"""The parts that depend on time: the clock, group commit, partitions with their waiters, the metadata log,
background jobs.
"""

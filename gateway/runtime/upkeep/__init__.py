"""Background jobs: retention, compaction, checkpoints, sweeps."""

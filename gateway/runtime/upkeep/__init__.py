"""Background jobs: retention, compaction, checkpoints, deletion of files, sweeps."""

"""The data directory: all partition logs, their checkpoints, closing, deletion and leaks."""

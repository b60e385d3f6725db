"""The data directory of a gateway: all partition logs, their checkpoints, closing, deletion and leaks."""

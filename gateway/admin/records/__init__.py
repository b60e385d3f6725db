"""The records of a topic: what commands write and read."""

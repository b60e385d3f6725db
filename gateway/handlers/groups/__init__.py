"""Classic and consumer groups and their offsets."""

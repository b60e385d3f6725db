"""Handlers for classic and consumer groups and their offsets."""

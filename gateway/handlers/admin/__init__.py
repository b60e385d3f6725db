"""Handlers for topics, configurations and the cluster."""

"""Handlers for who may do what, and how much."""

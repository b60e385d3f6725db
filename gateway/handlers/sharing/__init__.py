"""Handlers for share groups."""

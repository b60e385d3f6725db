"""Reads the gateway's metrics listener, and keeps the newest figures for the charts."""

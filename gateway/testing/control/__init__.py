"""The faults, the clock and the look inside for programs in any language: JSON over HTTP, on the loopback
interface only.
"""

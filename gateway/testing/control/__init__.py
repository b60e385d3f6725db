"""The faults, the clock and the look inside for any language: JSON over HTTP, on the loopback interface."""

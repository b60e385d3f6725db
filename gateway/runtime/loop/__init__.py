"""The event loop's own things: clock, timers, slices, tasks, and what the machine gives."""

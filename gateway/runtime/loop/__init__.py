"""Parts of the event loop: clock, timers, slices, tasks, and the machine's resources."""

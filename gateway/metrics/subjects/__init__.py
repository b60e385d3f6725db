"""One module for each subject of the table of metrics: its metrics, and the function that reads their values."""

"""Pages about runs: one HTML file (`page`) or a local web server (`live`)."""

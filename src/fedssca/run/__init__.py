"""One TOML is one run: the configuration, its parts, the run directory, tuning and export."""

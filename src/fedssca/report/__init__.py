"""Figures, tables and pages about runs: they read run directories, never live objects."""

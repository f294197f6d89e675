"""Private set intersection: which row ids all parties have."""

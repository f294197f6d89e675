"""What the server runs: it asks the sites, adds up, evaluates, and records the run."""

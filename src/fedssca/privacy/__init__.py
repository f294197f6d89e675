"""What parties hide from the server and from each other: wrappers of the aggregation."""

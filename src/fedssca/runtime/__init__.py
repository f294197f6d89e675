"""Where rounds happen: one compiled program, in-process messages, or machines."""

"""Engines that carry messages between machines."""

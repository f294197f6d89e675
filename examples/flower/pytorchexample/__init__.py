"""Flower's quick start with PyTorch."""

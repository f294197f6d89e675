"""Differential privacy: clipping, Gaussian noise, and the account of what is spent."""

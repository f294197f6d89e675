"""Sums that hide the summands: masks, ciphertexts, and what they are made of."""

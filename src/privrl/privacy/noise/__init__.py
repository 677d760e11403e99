"""Noise distributions, sources of randomness, exact samplers and sums of whole numbers."""

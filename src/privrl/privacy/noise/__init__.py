"""Distributions of noise, where randomness comes from, and whole numbers."""

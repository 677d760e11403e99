"""Attacks on the noise: two neighbouring worlds, and a score of what was released."""

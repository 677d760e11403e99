"""Continual release: mechanisms that release running sums at public times."""

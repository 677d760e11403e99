"""Reproducible experiments and what is written about them: the sepsis demo and its report."""

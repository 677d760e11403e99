"""Learners on linear features."""

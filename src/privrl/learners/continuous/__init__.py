"""Learners for states that are rows of measurements."""

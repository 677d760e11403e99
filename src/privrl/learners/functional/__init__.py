"""Learners from released functions."""

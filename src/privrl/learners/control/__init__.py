"""Learners of linear control."""

"""Learners by gradient steps on whole episodes."""

"""Learners of finite worlds, from counts."""

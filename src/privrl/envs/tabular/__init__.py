"""Finite worlds with public features."""

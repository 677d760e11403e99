"""Worlds on which offline recipes are compared."""

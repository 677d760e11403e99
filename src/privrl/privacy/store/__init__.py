"""Durable releases under a hard budget."""

"""Worlds of patients with real-valued measurements."""

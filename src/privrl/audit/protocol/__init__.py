"""Attacks on the protocol: crashes, order, exact relations, and people who end or return."""

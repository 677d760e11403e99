"""Rows of a table as they stream by: files, batches, checks, and what is kept of them."""

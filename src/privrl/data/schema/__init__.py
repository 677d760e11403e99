"""Declarations of a table: columns, public bounds, and errors that quote no cell."""

"""Functions, released once and asked for ever."""

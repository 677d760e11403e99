"""Functions, released once and queried any number of times."""

"""Functions that are released once and queried any number of times."""

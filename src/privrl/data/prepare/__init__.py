"""From raw records with times to a table of steps."""

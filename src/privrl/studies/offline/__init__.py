"""Studies of a table: `fit`, `evaluate`, `choose`, and the sums they ask for."""

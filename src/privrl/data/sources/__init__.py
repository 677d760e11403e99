"""Episodes from elsewhere: Gymnasium, Minari, and invented people."""

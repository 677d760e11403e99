"""Is a policy better than practice? Estimates from people who were not treated by it, under the same budget."""

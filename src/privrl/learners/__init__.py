"""The learners: one file per algorithm, private and not, and the registry that lists them."""

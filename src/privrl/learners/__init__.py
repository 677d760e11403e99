"""The learners: one file per algorithm, private and not."""

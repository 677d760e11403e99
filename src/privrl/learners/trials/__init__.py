"""Randomised trials of policies: the protocol, the boundaries and the learner that conducts them."""

"""Finite worlds and linear systems: what they are, what they are worth, and how people walk through them."""

from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.lq import LinearPolicy, LQTask, LQTrajectory
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory

__all__ = [
    "LQTask",
    "LQTrajectory",
    "LinearPolicy",
    "OneHotFeatures",
    "TableFeatures",
    "TabularMDP",
    "TabularPolicy",
    "Trajectory",
]

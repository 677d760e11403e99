"""Finite worlds, linear systems and measurements: what they are, what they are worth, how people walk through them."""

from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.lq import LinearPolicy, LQTask, LQTrajectory
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory

__all__ = [
    "LQTask",
    "LQTrajectory",
    "LinearPolicy",
    "MeasuredPolicy",
    "OneHotFeatures",
    "TableFeatures",
    "TabularMDP",
    "TabularPolicy",
    "Trajectory",
]

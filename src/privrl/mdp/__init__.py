"""Finite worlds, linear systems and measurements: definitions, exact values and simulation."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.contracts.policy import register_policy
    from privrl.mdp.exported_policy import Advice, EpisodeState, ExportedPolicy
    from privrl.mdp.features import OneHotFeatures, TableFeatures
    from privrl.mdp.lq import LinearPolicy, LQTask, LQTrajectory
    from privrl.mdp.measured_policy import MeasuredPolicy
    from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory, Transitions

__all__ = [
    "Advice",
    "EpisodeState",
    "ExportedPolicy",
    "LQTask",
    "LQTrajectory",
    "LinearPolicy",
    "MeasuredPolicy",
    "OneHotFeatures",
    "TableFeatures",
    "TabularMDP",
    "TabularPolicy",
    "Trajectory",
    "Transitions",
    "register_policy",
]

__getattr__, __dir__ = lazy_names(__name__)

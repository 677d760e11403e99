"""Finite worlds and linear systems: what they are, what they are worth, and how people walk through them."""

from privrl.mdp._features import AbstractFeatures, OneHotFeatures, TableFeatures
from privrl.mdp._linear import LinearMDP, LinearMixtureMDP
from privrl.mdp._lq import LinearPolicy, LQSystem, LQTask, LQTrajectory, explorations
from privrl.mdp._planning import occupancy, optimal_value, optimal_values, policy_value, policy_values, regret
from privrl.mdp._simulation import action_coin, draw_action, flow, flow_transitions, rollout, sample_episodes
from privrl.mdp._types import TabularMDP, TabularPolicy, Trajectory, Transitions

__all__ = [
    "AbstractFeatures",
    "LQSystem",
    "LQTask",
    "LQTrajectory",
    "LinearMDP",
    "LinearMixtureMDP",
    "LinearPolicy",
    "OneHotFeatures",
    "TabularMDP",
    "TabularPolicy",
    "TableFeatures",
    "Trajectory",
    "Transitions",
    "action_coin",
    "draw_action",
    "explorations",
    "flow",
    "flow_transitions",
    "occupancy",
    "optimal_value",
    "optimal_values",
    "policy_value",
    "policy_values",
    "regret",
    "rollout",
    "sample_episodes",
]

"""Reproducible experiments and what is written about them: the sepsis demo and its report."""

from privrl.experiments._demo import (
    DemoSize,
    baseline_values,
    check_demo_folder,
    sampled,
    save_study,
    sepsis_study,
)
from privrl.experiments._numbers import mean_and_error, written
from privrl.experiments._plots import regret_figure
from privrl.experiments._report import study_page
from privrl.experiments._study import Study
from privrl.experiments._words import guess_rate, in_words, shares

__all__ = [
    "DemoSize",
    "Study",
    "baseline_values",
    "check_demo_folder",
    "guess_rate",
    "in_words",
    "mean_and_error",
    "regret_figure",
    "sampled",
    "save_study",
    "sepsis_study",
    "shares",
    "study_page",
    "written",
]

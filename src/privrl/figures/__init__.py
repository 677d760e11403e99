"""Reproduce the figures of papers, and others that privrl adds: data, a plot, and a verdict on every claim."""

from privrl.figures.all_figures import figures, get
from privrl.figures.figure import reproduce

__all__ = ["figures", "get", "reproduce"]

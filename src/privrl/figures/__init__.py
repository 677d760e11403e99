"""Figures of the papers, and our own, each made by one command: data, plot, and a verdict per claim."""

from privrl.figures.figure import reproduce
from privrl.figures.registry import figures, get

__all__ = ["figures", "get", "reproduce"]

"""Reproduce the figures of papers, and others that privrl adds: data, a plot, and a verdict on every claim."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.figures.all_figures import figures, get
    from privrl.figures.figure import reproduce

__all__ = ["figures", "get", "reproduce"]

__getattr__, __dir__ = lazy_names(__name__)

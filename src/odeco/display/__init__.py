"""Results for people: tables, figures, HTML pages and progress bars."""

from odeco.display.figures import ConvergenceDisplay, CosinesDisplay, LeadingDisplay, VectorDisplay, WeightsDisplay

__all__ = ["ConvergenceDisplay", "CosinesDisplay", "LeadingDisplay", "VectorDisplay", "WeightsDisplay"]

"""All components of a tensor together: where to start, the best fit, how many there are, and how far to trust it."""

from odeco.fit._errors import standard_errors
from odeco.fit._gauss_newton import Fit, refine
from odeco.fit._judgement import Judge, Judged, Stage, fit_given, hidden_components, judge
from odeco.fit._starts import fitted_weights, removal_costs
from odeco.fit._term_judgement import TermJudge
from odeco.fit._terms import explained_by_terms, factors_of, term_angle_errors

__all__ = [
    "Fit",
    "Judge",
    "Judged",
    "Stage",
    "TermJudge",
    "explained_by_terms",
    "factors_of",
    "fit_given",
    "fitted_weights",
    "hidden_components",
    "judge",
    "refine",
    "removal_costs",
    "standard_errors",
    "term_angle_errors",
]

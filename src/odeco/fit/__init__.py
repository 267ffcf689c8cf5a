"""All components of a tensor together: where to start, the best fit, how many there are, and how far to trust it."""

from odeco.fit._errors import standard_errors
from odeco.fit._gauss_newton import Fit, refine
from odeco.fit._judgement import Judged, Stage, fit_given, judge

__all__ = ["Fit", "Judged", "Stage", "fit_given", "judge", "refine", "standard_errors"]

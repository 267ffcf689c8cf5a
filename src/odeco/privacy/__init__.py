"""Differential privacy: accounting, noise, sensitivities, data holders, audits."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)

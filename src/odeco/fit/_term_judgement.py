"""How many terms an asymmetric tensor has: the judgement of `_judgement`, with an unfolding for each axis."""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray
from odeco.components import Components
from odeco.fit._gauss_newton import Fit
from odeco.fit._judgement import Judge, Tell
from odeco.fit._spectrum import Spectra, spectra_of_axes
from odeco.fit._term_starts import fit_terms_in_spans
from odeco.fit._terms import left_by, refine_terms, term_removal_costs
from odeco.oracle import Oracle
from odeco.rank import ProductNoise
from odeco.search import Plan, run
from odeco.tensors import AsymmetricTensor


class TermJudge(Judge):
    """Fits of one asymmetric tensor with different numbers of terms.

    A term λ a ⊗ b ⊗ … is held as a component with the weight λ and the vector (a, b, …)/√p.
    """

    def __init__(self, oracle: Oracle, generator: np.random.Generator, tell: Tell | None, *, most: int) -> None:
        if not isinstance(oracle, AsymmetricTensor):
            raise TypeError(f"The tensor must be an AsymmetricTensor. Got {type(oracle).__name__}.")
        self.tensor = oracle
        super().__init__(oracle, generator, tell, most=most)
        self.noise = ProductNoise(oracle.parts)

    def refined(self, start: Components) -> Fit:
        """Move terms to the nearest least-squares optimum."""
        return refine_terms(self.tensor, start, whole=self.whole)

    def loop(self, plan: Plan, *, without: Components | None = None) -> Components:
        """Return what the paper's loop finds in the tensor, or in what terms leave of it."""
        tensor = self.tensor if without is None else left_by(self.tensor, without)
        found = run(tensor, plan, rng=self.generator).components
        return Components(tensor.term_weights(found.weights), found.vectors, self.order)

    def costs(self, components: Components) -> FloatArray:
        """Return by how much the squared misfit grows if a term is left out."""
        return term_removal_costs(components, self.tensor.parts)

    def _measured(self) -> tuple[float, Spectra]:
        entries = self.tensor.entries
        return float(np.vdot(entries, entries)), spectra_of_axes(entries, self.tensor.rounding)

    def _fit_in_span(self, rank: int) -> Fit:
        leading = self.spectrum.leading(rank)
        return fit_terms_in_spans(self.tensor, rank, leading, self.generator, whole=self.whole)

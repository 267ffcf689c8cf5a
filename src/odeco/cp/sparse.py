"""The CP fit of a sparse asymmetric tensor: images, gradients and a dense core from the non-zero entries alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.asymmetric import AsymmetricProblem, split
from odeco.cp.spectrum import FEWEST_FOR_A_LAW, ROUNDING_MULTIPLE, Spectra, Spectrum, spectrum_of_gram
from odeco.power.steps import normalise
from odeco.tensors.asymmetric import AsymmetricTensor, EmbeddedTerms, SparseAsymmetricTensor
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: Up to this size of an axis the Gram matrix of an unfolding is formed.
_MAX_GRAM = 1000


class SparseProblem(AsymmetricProblem):
    """A sparse asymmetric tensor and the least-squares fit of its terms. Only its core is dense."""

    oracle: SparseAsymmetricTensor  # type: ignore[assignment]

    def __init__(self, tensor: SparseAsymmetricTensor) -> None:
        self.oracle, self.parts, self.order, self.symmetric = tensor, tensor.parts, tensor.order, ()
        self.whole = float(tensor.values @ tensor.values)
        self.n_entries = math.prod(tensor.parts)

    @property
    def has_entries(self) -> bool:
        """False: a residual has entries everywhere."""
        return False

    def without(self, components: Components) -> AsymmetricProblem:
        """Return the tensor minus terms, which is not formed; only its images are known."""
        left = copy.copy(self)
        left.oracle = self.oracle - EmbeddedTerms(components, self.parts)  # type: ignore[assignment]
        return left

    def spectra(self, width: int, generator: np.random.Generator) -> Spectra:
        """Return the spectra of the unfoldings, or those of at least `width` images if an axis is long."""
        if max(self.parts) > _MAX_GRAM:
            return spectra_of_images(self.oracle, width, generator)
        grams = [(unfolding @ unfolding.T).toarray() for unfolding in map(self.oracle.unfolding, range(self.order))]
        n_columns = [self.n_entries // size for size in self.parts]
        spectra = [spectrum_of_gram(*each, self.oracle.rounding) for each in zip(grams, n_columns, strict=True)]
        return Spectra(tuple(spectra))

    def inside(self, bases: Sequence[FloatArray]) -> AsymmetricProblem:  # type: ignore[override]
        """Return the core, a dense tensor."""
        return AsymmetricProblem(AsymmetricTensor(self.oracle.contract(bases)))


def spectra_of_images(oracle: Oracle, width: int, generator: np.random.Generator) -> Spectra:
    """Return the spectra of images of random vectors along each axis, as `spectrum_of` does for symmetric tensors."""
    count = max(2 * width + 5, 2 * FEWEST_FOR_A_LAW)
    pieces = [generator.standard_normal((size, count)) for size in oracle.parts]
    for _ in range(2):
        images = oracle.image(normalise(np.concatenate(pieces), oracle.parts, np.ones((oracle.dimension, count))))
        spectra = []
        for axis, image in enumerate(split(images, oracle.parts)):
            with one_blas_thread():
                left, strengths, _ = np.linalg.svd(image, full_matrices=False)
            rounding = (ROUNDING_MULTIPLE * oracle.rounding * float(strengths[0])) ** 2
            spectra.append(Spectrum(strengths**2, left, max(image.shape), rounding))
            basis = left[:, : max(1, min(width, spectra[-1].n_usable))]
            pieces[axis] = basis @ generator.standard_normal((basis.shape[1], count))
    return Spectra(tuple(spectra))

"""Planted symmetric CP tensors, and what odeco, its peers and least squares from the truth make of
them.

Used by `any_tensor.py`. pyttb has no method for symmetric tensors (as of 1.8), so its `cp_als`
stands for it.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorly
from pyttb.cp_als import cp_als
from pyttb.tensor import tensor as pyttb_tensor
from tensorly.decomposition import parafac

import odeco
from odeco._util.types import FloatArray
from odeco.errors import RankError
from odeco.tensors import DenseTensor

#: Iterations of alternating least squares from one start, and the change of the error at which it
#: stops.
N_ITERATIONS, TOLERANCE = 200, 1e-8
#: Random starts of the peers; the one with the smallest error counts, and the time of all of them.
N_STARTS = 3
#: A component is found if its cosine with the true one is above this.
FOUND = 0.95


@dataclass(frozen=True)
class Cell:
    """A kind of problem.

    Attributes
    ----------
    order, dimension, n_components : int
        The p, d and k of the tensor.
    cosine : float or None
        The cosine of any two components; None for independent random unit vectors.
    noise : float
        The Frobenius norm of the noise over that of the tensor.
    signs : {"positive", "mixed"}
        Whether weights are positive, or of either sign with equal chance.
    """

    order: int
    dimension: int
    n_components: int
    cosine: float | None
    noise: float
    signs: str

    def planted(self, seed: int) -> tuple[odeco.Components, FloatArray]:
        """Return true components, with weights of size 1 to 3, and the entries of their tensor with
        noise.
        """
        d, k, generator = self.dimension, self.n_components, np.random.default_rng(seed)
        if self.cosine is None:
            vectors = generator.standard_normal((d, k))
        else:
            gram = (1 - self.cosine) * np.eye(k) + self.cosine
            vectors = (
                np.linalg.qr(generator.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
            )
        weights = generator.uniform(1, 3, k) * (
            1 if self.signs == "positive" else generator.choice([-1, 1], k)
        )
        truth = odeco.Components(weights, vectors / np.linalg.norm(vectors, axis=0), self.order)
        entries = odeco.symmetrize(truth.to_dense() if d**self.order * k < 2**24 else _dense(truth))
        noise = odeco.symmetrize(generator.standard_normal((d,) * self.order))
        noise *= self.noise * np.linalg.norm(entries) / np.linalg.norm(noise)
        return truth, entries + noise


@dataclass(frozen=True)
class Outcome:
    """What one method made of one tensor.

    Attributes
    ----------
    cosine : float
        The smallest cosine of a true component with the one that stands for it.
    seconds : float
        Processor time.
    n_true : int
        How many components there are.
    rank : int
        How many components it returned; 0 if it gave up.
    confidence : float
        How sure it said to be of that number; NaN if it did not say.
    candidates : tuple of int
        The numbers between which it could not decide.
    said : str
        What structure it found, or why it gave up.
    """

    cosine: float
    seconds: float
    n_true: int
    rank: int = 0
    confidence: float = float("nan")
    candidates: tuple[int, ...] = ()
    said: str = ""

    @property
    def found_all(self) -> bool:
        """Whether every component was found, and nothing else."""
        return self.cosine > FOUND and self.rank == self.n_true


Method = Callable[[FloatArray, odeco.Components, int], Outcome]


def odeco_given_k(entries: FloatArray, truth: odeco.Components, seed: int) -> Outcome:
    """Return what `odeco.decompose` finds when it is told the number of components."""
    return _by_odeco(entries, truth, seed, truth.n_components)


def odeco_auto(entries: FloatArray, truth: odeco.Components, seed: int) -> Outcome:
    """Return what `odeco.decompose` finds when it must find out their number too."""
    return _by_odeco(entries, truth, seed, "auto")


def tensorly_svd(entries: FloatArray, truth: odeco.Components, seed: int) -> Outcome:
    """Return what TensorLy's `parafac` finds from its start by singular vectors, its default."""

    def factors() -> list[FloatArray]:
        found = parafac(
            entries,
            truth.n_components,
            init="svd",
            n_iter_max=N_ITERATIONS,
            tol=TOLERANCE,
            random_state=seed,
        )
        return list(found.factors)

    return _by_peer(factors, truth)


def tensorly_random(entries: FloatArray, truth: odeco.Components, seed: int) -> Outcome:
    """Return what TensorLy's `parafac` finds from the best of several random starts."""

    def factors() -> list[FloatArray]:
        runs = [
            parafac(
                entries,
                truth.n_components,
                init="random",
                n_iter_max=N_ITERATIONS,
                tol=TOLERANCE,
                random_state=1000 * seed + start,
                return_errors=True,
            )
            for start in range(N_STARTS)
        ]
        return list(min(runs, key=lambda run: float(run[1][-1]))[0].factors)

    return _by_peer(factors, truth)


def pyttb_best(entries: FloatArray, truth: odeco.Components, seed: int) -> Outcome:
    """Return what `pyttb.cp_als` finds from the best of its start by singular vectors and several
    random ones.
    """

    def factors() -> list[FloatArray]:
        tensor = pyttb_tensor(entries)
        np.random.seed(seed)  # noqa: NPY002 - the only way to seed pyttb's starts
        runs = [
            cp_als(
                tensor,
                truth.n_components,
                init=start,
                stoptol=TOLERANCE,
                maxiters=N_ITERATIONS,
                printitn=0,
            )
            for start in ("nvecs", *["random"] * N_STARTS)
        ]
        return list(min(runs, key=lambda run: float(run[2]["normresidual"]))[0].factor_matrices)

    return _by_peer(factors, truth)


def from_truth(entries: FloatArray, truth: odeco.Components, _: int) -> Outcome:
    """Return the least-squares fit next to the truth: what can be recovered at all.

    Damped Gauss-Newton steps on Σ sᵣ aᵣ⊗ᵖ with the true signs s and the true components as the
    start. JᵀJ of this model needs only inner products of the aᵣ, so that each step is solved by
    conjugate gradients and costs one image.
    """
    oracle, p = DenseTensor(entries), truth.order
    signs = np.sign(truth.weights)
    factors = truth.vectors * np.abs(truth.weights) ** (1 / p)
    start, damping = time.process_time(), 1e-6
    image = oracle.image(factors)
    for _step in range(60):
        gram = factors.T @ factors
        gradient = signs * (image - (factors * signs) @ gram ** (p - 1))
        step = _solve_normal_equations(
            factors, signs, gram, gradient, p, damping * float(np.max(gram)) ** (p - 1)
        )
        image_there = oracle.image(factors + step)
        if _misfit(factors + step, image_there, signs, p) > _misfit(factors, image, signs, p):
            damping *= 10
        else:
            factors, image, damping = factors + step, image_there, damping / 3
        if np.linalg.norm(step) < 1e-8 * np.linalg.norm(factors):
            break
    seconds = time.process_time() - start
    return Outcome(_worst_cosine(factors, truth), seconds, truth.n_components, truth.n_components)


METHODS: dict[str, Method] = {
    "odeco k": odeco_given_k,
    "auto": odeco_auto,
    "TL svd": tensorly_svd,
    "TL rand": tensorly_random,
    "pyttb": pyttb_best,
    "truth": from_truth,
}
PEERS = ("TL svd", "TL rand", "pyttb")


def _by_odeco(
    entries: FloatArray, truth: odeco.Components, seed: int, n_components: int | str
) -> Outcome:
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = odeco.decompose(entries, n_components, rng=seed)  # type: ignore[arg-type]
    except (RankError, ValueError) as error:
        return Outcome(
            0.0,
            time.process_time() - start,
            truth.n_components,
            said=f"{type(error).__name__}: {error}",
        )
    seconds = time.process_time() - start
    evidence = result.rank_evidence
    return Outcome(
        float(odeco.match(result, truth).cosines.min()),
        seconds,
        truth.n_components,
        result.weights.size,
        float("nan") if evidence is None else float(evidence.confidence),
        () if evidence is None else evidence.candidates,
        str(result.structure),
    )


def _by_peer(work: Callable[[], list[FloatArray]], truth: odeco.Components) -> Outcome:
    """Time a peer. Its factors differ between axes; the axis on which it comes nearest to the truth
    counts.
    """
    start = time.process_time()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            factors = work()
    except (np.linalg.LinAlgError, ValueError) as error:
        return Outcome(
            0.0,
            time.process_time() - start,
            truth.n_components,
            said=f"{type(error).__name__}: {error}",
        )
    seconds = time.process_time() - start
    return Outcome(
        max(_worst_cosine(factor, truth) for factor in factors),
        seconds,
        truth.n_components,
        truth.n_components,
    )


def _worst_cosine(vectors: FloatArray, truth: odeco.Components) -> float:
    if not np.isfinite(vectors).all():
        return 0.0
    lengths = np.linalg.norm(vectors, axis=0)
    found = odeco.Components(
        np.ones(vectors.shape[1]), np.where(lengths > 0, vectors, 1.0), truth.order
    )
    return float(odeco.match(found, truth).cosines.min())


def _dense(components: odeco.Components) -> FloatArray:
    """Return the entries of components by one matrix product."""
    d, left = components.dimension, components.vectors * components.weights
    right = components.vectors
    for _ in range(components.order - 2):
        right = (right[:, None, :] * components.vectors[None, :, :]).reshape(
            -1, components.n_components
        )
    entries: FloatArray = (left @ right.T).reshape((d,) * components.order)
    return entries


def _misfit(factors: FloatArray, image: FloatArray, signs: FloatArray, order: int) -> float:
    """Return ‖T − Σ sᵣ aᵣ⊗ᵖ‖², less ‖T‖², from the images of the aᵣ."""
    model = float(signs @ (factors.T @ factors) ** order @ signs)
    return model - 2 * float(np.sum(signs * np.sum(factors * image, axis=0)))


def _solve_normal_equations(
    factors: FloatArray,
    signs: FloatArray,
    gram: FloatArray,
    right: FloatArray,
    order: int,
    damping: float,
) -> FloatArray:
    """Solve (JᵀJ / p + damping) x = right by conjugate gradients; J x = Σ p sᵣ sym(xᵣ ⊗ aᵣ⊗ᵖ⁻¹)."""
    lower, upper = gram ** (order - 2), gram ** (order - 1)

    def times(x: FloatArray) -> FloatArray:
        crossed = (x.T @ factors) * lower  # r, q: ⟨xᵣ, a_q⟩ ⟨aᵣ, a_q⟩ᵖ⁻²
        moved = (x * signs) @ upper + (order - 1) * (factors * signs) @ crossed
        image: FloatArray = signs * moved + damping * x
        return image

    x, rest = np.zeros_like(right), right
    direction, size = rest, float(np.sum(rest**2))
    for _ in range(500):
        if size <= 1e-20 * float(np.sum(right**2)) or size == 0:
            break
        image = times(direction)
        length = size / float(np.sum(direction * image))
        x, rest = x + length * direction, rest - length * image
        smaller = float(np.sum(rest**2))
        direction, size = rest + smaller / size * direction, smaller
    return x


tensorly.set_backend("numpy")

"""Stochastic gradient descent on all components at once: the two online methods that the paper
compares with.

The paper's own Algorithm 2 finds one component after another. Huang et al. (2015) and Ge et al.
(2015) instead minimise one objective for all components. Here both methods see the rows once, in
small batches, and never form the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from odeco import Components
from odeco.io import BatchSource, as_source, rebatch
from reproduction.arguments import FloatArray, RngLike, check_choice, check_count, check_positive
from reproduction.baselines.matrices import positive_components

Variant = Literal["huang2015", "ge2015"]

#: The objective and the values T(v, …, v) on a batch, and the gradient. Their shapes are (S,), (S,
#: k) and (d, S, k).
Slope: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]


#: The learning rates that `tune_learning_rate` tries.
LEARNING_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

#: The length of the first vectors of ``"huang2015"`` for rows whose mean square length is 1. It is
#: short enough for any learning rate.
_START_LENGTH = 0.2

#: Objectives and weights are averaged over the last batches, this share of them, where the steps
#: are small.
_SCORED_SHARE = 0.25


def online_sgd(
    batches: Any,
    n_components: int,
    *,
    variant: Variant = "huang2015",
    batch_size: int,
    dimension: int | None = None,
    order: int | None = None,
    learning_rate: float | None = None,
    n_rows: int | None = None,
    n_restarts: int = 4,
    gaussian_variance: float = 0.0,
    rng: RngLike = None,
) -> Components:
    r"""Decompose the moment T = E[x⊗ᵖ] by one pass of stochastic gradient descent on a joint
    objective.

    Parameters
    ----------
    batches : array, CSR array, path, iterable of arrays, …
        The rows; see `odeco.io.as_source`.
    n_components : int
        The number k of components.
    variant : {"huang2015", "ge2015"}
        The objective; see Notes. ``"ge2015"`` works at order 4 and for k = d only.
    batch_size : int
        The number of rows for each step.
    dimension : int, optional
        The width that the rows must have; by default that of the first block.
    order : int, optional
        The order p of the moment: 3 by default for ``"huang2015"``, 4 for ``"ge2015"``.
    learning_rate : float, optional
        The length η of the first steps, for rows whose mean square length is 1; by default 1/p².
        For other rows it is divided by a power of the root mean square length of the first batch,
        so that longer rows give the same descent at another scale. `tune_learning_rate` finds a
        good one.
    n_rows : int, optional
        The number of rows to read; by default all. It must be given for a stream of unknown length,
        because the steps depend on it: η stays the same for the first half of the rows and then
        falls linearly to 0.
    n_restarts : int
        The number of independent descents on the same rows. The one with the lowest objective over
        the last quarter of the batches is returned.
    gaussian_variance : float
        The variance τ² of the rows in every direction, for ``"ge2015"`` only. T is then the fourth
        cumulant E[x⊗⁴] − τ⁴ (I⊗I + its two permutations) of white rows. With 0, T is the moment.
    rng : None, int or numpy.random.Generator
        Draws the starts, and the noise of ``"ge2015"``.

    Returns
    -------
    Components
        The components, the largest weight first.

    Raises
    ------
    ValueError
        If the descent does not stay finite; pass a smaller learning rate.

    Notes
    -----
    The n rows of a batch are the rows of the matrix X. Powers and ∘ are taken entry by entry. The
    vectors vᵢ are the columns of V.

    ``"huang2015"`` minimises F(V) = ½ ‖T − Σᵢ vᵢ⊗ᵖ‖². Up to the constant ½‖T‖² this is
    ½ Σᵢⱼ ⟨vᵢ,vⱼ⟩ᵖ − Σᵢ T(vᵢ,…,vᵢ), with the gradient

        ∂F/∂vᵢ = p (Σⱼ ⟨vᵢ,vⱼ⟩ᵖ⁻¹ vⱼ − T(I,vᵢ,…,vᵢ)),  in matrices  p (V (VᵀV)ᵖ⁻¹ − Xᵀ (XV)ᵖ⁻¹ / n).

    The length of vᵢ is the p-th root of its weight, so at even orders all weights must be positive.
    Starts are orthogonal. The objective has spurious minima, in which two vectors share a
    component, so several starts are needed.

    ``"ge2015"`` minimises G(U) = Σ_{i≠j} T(uᵢ,uᵢ,uⱼ,uⱼ) over unit vectors, all of whose local
    minima are right if T has k = d orthogonal components of positive weight. With s = Σⱼ (XU)²ⱼ,
    summed along rows, the gradient is

        ∂G/∂uᵢ = 4 Σ_{j≠i} T(I,uᵢ,uⱼ,uⱼ),    in matrices    4 Xᵀ (XU ∘ (s − (XU)²)) / n,

    minus 4 τ⁴ Σ_{j≠i} (‖uⱼ‖² uᵢ + 2 ⟨uᵢ,uⱼ⟩ uⱼ) for the cumulant. Each step adds a uniformly random
    unit vector to each gradient, moves along the part of the sum that is tangent to the sphere, and
    normalises. If k < d the objective is of no use: it is 0 for any vectors that are orthogonal to
    all components.

    Two things differ from the papers. The steps fall in the same way for both variants. And Huang
    et al. whiten to k dimensions first, which is a problem of its own and is left to the caller.

    References
    ----------
    Huang, Niranjan, Hakeem and Anandkumar, *Online tensor methods for learning latent variable
    models*, 2015, arXiv:1309.0787. Ge, Huang, Jin and Yuan, *Escaping from saddle points: online
    stochastic gradient for tensor decomposition*, 2015, arXiv:1503.02101.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import online_sgd
    >>> rows = np.eye(4)[np.random.default_rng(0).choice(2, size=20000, p=[0.7, 0.3])]
    >>> online_sgd(rows, 2, batch_size=20, rng=0).weights.round(1)
    array([0.7, 0.3])
    """
    settings = _Settings.checked(
        variant, order, learning_rate, n_restarts, gaussian_variance, batch_size, n_rows
    )
    return _descend(as_source(batches, n_features=dimension), n_components, settings, rng)[0]


def tune_learning_rate(
    rows: Any,
    n_components: int,
    *,
    variant: Variant = "huang2015",
    batch_size: int,
    learning_rates: Iterable[float] = LEARNING_RATES,
    order: int | None = None,
    n_rows: int | None = None,
    n_restarts: int = 4,
    gaussian_variance: float = 0.0,
    rng: RngLike = None,
) -> float:
    """Return the learning rate that gets `online_sgd` to the lowest objective, out of a grid.

    The objective is measured on each batch of the last quarter before the descent learns from that
    batch. So it is the objective of unseen rows, and the true components are not needed. Use other
    rows than those to be decomposed, but as many of them, because the best rate depends on the
    number of steps.

    Parameters
    ----------
    rows : array, path, callable, …
        Rows that can be read again. They are read once for each rate.
    n_components, variant, batch_size, order, n_rows, n_restarts, gaussian_variance
        As for `online_sgd`.
    learning_rates : iterable of float
        The grid; by default from 0.01 to 100 in steps of about 3.
    rng : None, int or numpy.random.Generator
        Draws the starts, the same for every rate.

    Returns
    -------
    float
        The best learning rate.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import tune_learning_rate
    >>> rows = np.eye(4)[np.random.default_rng(0).choice(2, size=20000, p=[0.7, 0.3])]
    >>> 0.01 < tune_learning_rate(rows, 2, batch_size=100, rng=0) < 10
    True
    """
    seed = int(np.random.default_rng(rng).integers(2**63))
    scores: dict[float, float] = {}
    for given in learning_rates:
        settings = _Settings.checked(
            variant, order, given, n_restarts, gaussian_variance, batch_size, n_rows
        )
        try:
            _, scores[settings.learning_rate] = _descend(
                as_source(rows), n_components, settings, seed
            )
        except DivergedError:
            scores[settings.learning_rate] = math.inf
    best = min(scores, key=scores.__getitem__, default=math.nan)
    if not scores or not math.isfinite(scores[best]):
        raise ValueError(
            f"At least one learning rate must keep the descent finite. None of {sorted(scores)} "
            "does. Pass smaller ones."
        )
    return best


class DivergedError(ValueError):
    """A descent did not stay finite."""


def residual_slope(vectors: FloatArray, rows: Any, order: int) -> Slope:
    """Return ½ ‖T − Σ vᵢ⊗ᵖ‖² − ½ ‖T‖² of each restart, the values T(vᵢ,…,vᵢ) and the gradient
    (``"huang2015"``).

    Parameters
    ----------
    vectors : array, d x S x k
        The k vectors of each of S restarts.
    rows : array or CSR array, n x d
        The batch that stands for T.
    order : int
        The order p.
    """
    overlaps = rows @ vectors.reshape(vectors.shape[0], -1).astype(rows.dtype)
    powers = overlaps ** (order - 1)
    images = (rows.T @ powers).reshape(vectors.shape) / rows.shape[0]
    values = np.asarray(np.mean(overlaps * powers, axis=0, dtype=np.float64)).reshape(
        vectors.shape[1:]
    )
    stack = vectors.transpose(1, 0, 2)
    gram = stack.transpose(0, 2, 1) @ stack
    objective = 0.5 * np.sum(gram**order, axis=(1, 2)) - np.sum(values, axis=1)
    fitted = (stack @ gram ** (order - 1)).transpose(1, 0, 2)
    return objective, values, order * (fitted - images)


def overlap_slope(vectors: FloatArray, rows: Any, gaussian_variance: float = 0.0) -> Slope:
    """Return Σ_{i≠j} T(uᵢ,uᵢ,uⱼ,uⱼ) of each restart, the values T(uᵢ,uᵢ,uᵢ,uᵢ) and the gradient
    (``"ge2015"``).

    Parameters
    ----------
    vectors : array, d x S x k
        The k vectors of each of S restarts, of any length.
    rows : array or CSR array, n x d
        The batch that stands for T.
    gaussian_variance : float
        The τ² of `online_sgd`.
    """
    overlaps = (rows @ vectors.reshape(vectors.shape[0], -1).astype(rows.dtype)).reshape(
        -1, *vectors.shape[1:]
    )
    squares = overlaps**2
    others = np.sum(squares, axis=2, keepdims=True) - squares
    images = (rows.T @ (overlaps * others).reshape(rows.shape[0], -1)).reshape(
        vectors.shape
    ) / rows.shape[0]
    objective = np.mean(np.sum(squares * others, axis=2), axis=0, dtype=np.float64)
    values = np.mean(squares**2, axis=0, dtype=np.float64)
    stack = vectors.transpose(1, 0, 2)
    gram = stack.transpose(0, 2, 1) @ stack
    lengths = np.diagonal(gram, axis1=1, axis2=2)  # squared
    other_lengths = np.sum(lengths, axis=1, keepdims=True) - lengths
    off_diagonal = gram - lengths[:, :, None] * np.eye(vectors.shape[2])
    pairs = np.sum(lengths * other_lengths, axis=1) + 2 * np.sum(off_diagonal**2, axis=(1, 2))
    gaussian = vectors * other_lengths + 2 * (stack @ off_diagonal).transpose(1, 0, 2)
    fourth = gaussian_variance**2
    return (
        objective - fourth * pairs,
        values - 3 * fourth * lengths**2,
        4 * (images - fourth * gaussian),
    )


@dataclass(frozen=True)
class _Settings:
    """The checked arguments of the public functions."""

    variant: Variant
    order: int
    learning_rate: float
    n_restarts: int
    gaussian_variance: float
    batch_size: int
    n_rows: int | None

    @classmethod
    def checked(
        cls,
        variant: Variant,
        order: Any,
        learning_rate: Any,
        n_restarts: Any,
        variance: Any,
        size: Any,
        n_rows: Any,
    ) -> _Settings:
        check_choice("variant", variant, ("huang2015", "ge2015"))
        is_ge = variant == "ge2015"
        p = check_count("order", (4 if is_ge else 3) if order is None else order, 3)
        if is_ge and p != 4:
            raise ValueError(
                '`order` must be 4 for variant="ge2015", whose objective pairs the arguments of T. '
                f'Got {p}. Pass variant="huang2015" for other orders.'
            )
        rate = check_positive("learning_rate", 1 / p**2 if learning_rate is None else learning_rate)
        variance = check_positive("gaussian_variance", variance, or_zero=True)
        if variance and not is_ge:
            raise ValueError(
                f'`gaussian_variance` must be 0 for variant="huang2015". Got {variance}. At order '
                "3 a centred Gaussian part has no moment to subtract."
            )
        restarts, size = check_count("n_restarts", n_restarts), check_count("batch_size", size)
        rows = None if n_rows is None else check_count("n_rows", n_rows)
        return cls(variant, p, rate, restarts, variance, size, rows)

    def slope(self, vectors: FloatArray, rows: Any) -> Slope:
        """Return objective, values and gradient of the variant."""
        if self.variant == "ge2015":
            return overlap_slope(vectors, rows, self.gaussian_variance)
        return residual_slope(vectors, rows, self.order)


def _descend(
    source: BatchSource, n_components: int, settings: _Settings, rng: RngLike
) -> tuple[Components, float]:
    """Make one step for each batch, all restarts side by side; return the best restart and its
    objective.
    """
    size = settings.batch_size
    k = check_count("n_components", n_components, 1, source.n_features)
    if settings.variant == "ge2015" and k != source.n_features:
        raise ValueError(
            f'`n_components` must be the dimension of the rows for variant="ge2015". Got {k} for '
            f"dimension {source.n_features}. Project the rows onto the span of the components "
            "first."
        )
    n_steps = _count_steps(settings.n_rows, source.n_rows, size)
    generator = np.random.default_rng(rng)
    scored_from = n_steps - math.ceil(_SCORED_SHARE * n_steps)
    objectives, values = np.zeros(settings.n_restarts), np.zeros((settings.n_restarts, k))
    # The first vectors are orthonormal. Those of "huang2015" get their length when the first batch
    # is read.
    stack = np.linalg.qr(generator.standard_normal((settings.n_restarts, source.n_features, k)))[0]
    vectors: FloatArray = np.ascontiguousarray(stack.transpose(1, 0, 2))
    scale, step = 1.0, 0
    # A restart that diverges fills with infinities, and the others are not affected.
    with np.errstate(over="ignore", invalid="ignore"):
        for batch in rebatch(source, size):
            if step == n_steps:
                break
            if step == 0:
                scale = _root_mean_square_length(batch)
                vectors = (
                    vectors if settings.variant == "ge2015" else _START_LENGTH * scale * vectors
                )
            rate = settings.learning_rate * min(1.0, 2 * (1 - step / n_steps))
            objective, value, gradient = settings.slope(vectors, batch)
            if step >= scored_from:
                objectives += objective
                values += value
            if settings.variant == "ge2015":
                vectors = _moved_on_sphere(vectors, gradient / scale**4, rate, generator)
            else:
                vectors = vectors - (rate / scale ** (2 * settings.order - 2)) * gradient
            step += 1
    if step < n_steps:
        raise ValueError(
            f"There must be {n_steps * size:,} rows for {n_steps:,} steps. The stream ended after "
            f"{step:,} steps. Pass a smaller n_rows."
        )
    n_scored = n_steps - scored_from
    objectives[~np.isfinite(objectives) | ~np.isfinite(vectors).all(axis=(0, 2))] = math.inf
    best = int(np.argmin(objectives))
    if not math.isfinite(objectives[best]):
        raise DivergedError(
            "The descent must stay finite. No restart did. Pass a smaller learning_rate than "
            f"{settings.learning_rate:.3g}, or a larger batch_size."
        )
    found = vectors[:, best]
    if settings.variant == "ge2015":
        weights = values[best] / n_scored
    else:
        lengths = np.linalg.norm(found, axis=0)
        found, weights = found / lengths, lengths**settings.order
    return positive_components(weights, found, settings.order), float(objectives[best]) / n_scored


def _moved_on_sphere(
    vectors: FloatArray, gradient: FloatArray, rate: float, generator: np.random.Generator
) -> FloatArray:
    """Return unit vectors after one noisy step downhill, along the sphere."""
    noise = generator.standard_normal(vectors.shape)
    direction = gradient + noise / np.linalg.norm(noise, axis=0)
    direction -= vectors * np.sum(vectors * direction, axis=0)
    moved: FloatArray = vectors - rate * direction
    moved /= np.linalg.norm(moved, axis=0)
    return moved


def _count_steps(n_rows: int | None, available: int | None, batch_size: int) -> int:
    if n_rows is None and available is None:
        raise ValueError(
            "`n_rows` must be given for a stream of unknown length: the steps shorten towards its "
            "end. Got None. Pass the number of rows to read."
        )
    rows = available if n_rows is None else n_rows
    n_steps = (rows or 0) // batch_size
    if n_steps == 0:
        raise ValueError(
            f"There must be at least one batch of {batch_size:,} rows. Got {rows:,} rows. Pass a "
            "smaller batch_size."
        )
    return n_steps


def _root_mean_square_length(rows: Any) -> float:
    stored = rows if isinstance(rows, np.ndarray) else rows.data
    squared = float(np.sum(np.square(stored, dtype=np.float64))) / rows.shape[0]
    if squared == 0:
        raise ValueError(
            "The first batch must hold a non-zero row. Got zeros only. Check how the rows were "
            "made."
        )
    return math.sqrt(squared)

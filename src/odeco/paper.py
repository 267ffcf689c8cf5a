"""The three algorithms of the paper, in its letters: read this file first.

Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, NIPS 2016,
arXiv:1606.06237.

The L restarts of a component are the columns of one d x L matrix U, so that all of them take a
power iteration by one product T(I, U, U), whose columns are T(I, u, u) for the columns u of U.
Deflation is applied to this product: that of T − Σ λ̂ⱼ v̂ⱼ⊗³ is T(I, U, U) less the same product of
the components found. No tensor is copied, and Algorithms 2 and 3 can deflate a tensor that they
cannot see.

These functions are for reading and for comparison. For the same seed, bit-identical results come
from the power method in `odeco.decompose` with ``tol=0``, from `odeco.decompose_stream` with
``method="power"``, and from `odeco.decompose_privately` with ``mechanism="wang2016"`` and the
paper's calibration. Those also have stopping rules, other orders, checkpoints and reports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.arguments import as_seed, check_count
from odeco._util.types import FloatArray, RngLike
from odeco.io.coerce import as_source
from odeco.online.moments import StreamMoment
from odeco.power.steps import normalise, uniform_starts
from odeco.privacy.calibration import gdp_mu, paper_noise_multiplier
from odeco.privacy.holders.entries import EntryLevel, with_change
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource
from odeco.privacy.oracle import PrivateOracle
from odeco.tensors.components import Components
from odeco.tensors.dense import as_oracle

__all__ = [
    "online_tensor_power_method",
    "private_tensor_power_method",
    "robust_tensor_power_method",
]


def robust_tensor_power_method(
    T: Any, k: int, L: int, R: int, *, rng: RngLike = None
) -> Components:
    """Decompose a symmetric tensor: Algorithm 1.

    Parameters
    ----------
    T : array d x d x d, or Oracle of order 3
        The tensor.
    k, L, R : int
        The number of components, of restarts for each, and of power iterations for each restart.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    Returns
    -------
    Components
        The pairs (λ̂ᵢ, v̂ᵢ) in the order in which they were found.

    Notes
    -----
    Nothing of Algorithm 1 is changed. In line 5, v̂ᵢ and λ̂ᵢ belong to τ*; the paper prints τ. The
    value T(u, u, u) is computed as ⟨u, T(I, u, u)⟩. An image that is zero keeps its start.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.paper import robust_tensor_power_method
    >>> T = 2 * np.einsum("i,j,k->ijk", *[np.eye(4)[0]] * 3) + np.einsum(
    ...     "i,j,k->ijk", *[np.eye(4)[1]] * 3
    ... )
    >>> robust_tensor_power_method(T, k=2, L=5, R=10, rng=0).weights
    array([2., 1.])
    """
    T = _check(as_oracle(T), k, L, R)
    seed = as_seed(rng)
    found = _nothing(T.dimension)
    for i in range(k):
        U = _draw(seed, i, T.dimension, L)  # line 3, initialization
        for _ in range(R):  # line 4, power iteration
            U = _normalise(_image(T, found, U), U)
        values = _inner(U, _image(T, found, U))  # line 5, boosting
        found = _append(found, values, U)  # line 6, deflation
    return found


def online_tensor_power_method(
    rows: Any, k: int, L: int, R: int, n: int, *, rng: RngLike = None
) -> Components:
    """Decompose the third moment E[x⊗³] of a stream of rows x, each of which is read once:
    Algorithm 2.

    Parameters
    ----------
    rows : array, path, iterable of arrays, …
        The stream; see `odeco.io.as_source`. k R n rows are read.
    k, L, R, n : int
        The number of components, of restarts, of power iterations, and of fresh rows for each
        iteration.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    Returns
    -------
    Components
        The pairs (λ̂ᵢ, v̂ᵢ) in the order in which they were found.

    Raises
    ------
    StreamEndedError
        If there are fewer than k R n rows.

    Notes
    -----
    Errata that are applied: line 6 adds (xₗᵀu)² xₗ, where the paper has xᵢ; ξ in line 7 is taken
    with the unit vector u, where the paper has the vector ũ before normalisation. The second
    accumulator λ̃ is not kept, because it is ⟨u, ũ⟩. As printed, the weight λ̂ᵢ is measured at the
    iterate before the last, and v̂ᵢ is the last.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.paper import online_tensor_power_method
    >>> rows = np.eye(5)[np.random.default_rng(0).choice(2, size=10_000, p=[0.7, 0.3])]
    >>> online_tensor_power_method(rows, k=2, L=5, R=10, n=500, rng=0).weights.round(1)
    array([0.7, 0.3])
    """
    stream = as_source(rows)
    # Reads the next n rows for every image, and averages (xₗᵀu)² xₗ over them: lines 5 and 6.
    T = _check(StreamMoment(stream, stream.n_features, batch_size=n), k, L, R)
    seed = as_seed(rng)
    found = _nothing(T.dimension)
    for i in range(k):
        U = _draw(seed, i, T.dimension, L)  # line 3
        for _ in range(R):  # line 4
            U_tilde = _image(
                T, found, U
            )  # lines 5 to 7, initialization, data association, deflation
            values = _inner(U, U_tilde)
            U = _normalise(U_tilde, U)  # line 8, normalization
        found = _append(found, values, U)  # line 10
    return found


def private_tensor_power_method(
    T: Any,
    k: int,
    L: int,
    R: int,
    epsilon: float,
    delta: float,
    *,
    rng: RngLike = None,
    ledger: Ledger | LedgerFile | None = None,
    noise: NoiseSource | None = None,
) -> Components:
    """Decompose a symmetric tensor under (ε, δ)-differential privacy of its entries: Algorithm 3.

    Parameters
    ----------
    T : array d x d x d, or EntryLevel
        The tensor. An array is held as `odeco.privacy.EntryLevel` with the neighbour relation of
        Definition 4.2.
    k, L, R : int
        The number of components, of restarts and of power iterations. They must not be chosen from
        the data.
    epsilon, delta : float
        The guarantee.
    rng : None, int or numpy.random.Generator
        Draws the starts, which are public, and never the noise.
    ledger : Ledger or LedgerFile, optional
        A larger budget that is charged too, and may refuse.
    noise : NoiseSource, optional
        For tests: the result is private only with the default, the noise of the operating system.

    Returns
    -------
    Components
        The pairs (λ̂ᵢ, v̂ᵢ) in the order in which they were found.

    Raises
    ------
    BudgetExhausted
        If ν does not give (ε, δ), which happens for ε of some hundreds.

    Notes
    -----
    The noise is that of line 2. The proof in the paper does not establish the guarantee: at δ =
    10⁻⁵ the first term of the composition theorem alone exceeds ε. The guarantee holds because the
    noise is several times what exact accounting asks for (`odeco.privacy.noise_multiplier`), and
    the ledger checks that. The k L releases of line 10 could be saved, as T(u, u, u) = ⟨u, T(I, u,
    u)⟩ can be read off the last image; they are made, as printed. Replies and noise are rounded to
    a common grid, 2⁻³⁰ of the noise; rounding errors are part of the sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.paper import private_tensor_power_method
    >>> T = 6e4 * np.einsum("i,j,k->ijk", *np.full((3, 20), 20**-0.5))
    >>> found = private_tensor_power_method(T, k=1, L=5, R=10, epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(found.vectors[:, 0].sum() > 0.9 * 20**0.5)
    True
    """
    holder = T if isinstance(T, EntryLevel) else EntryLevel(T, neighbour_relation="literal")
    _check(holder, k, L, R)
    K = k * L * (R + 1)
    z = paper_noise_multiplier(
        epsilon, delta, K
    )  # line 2: ν/6, where 6‖u‖∞² and 6‖u‖∞³ are the sensitivities
    neighbours = with_change(holder.neighbour_relation, holder.entry_change)
    budget = Ledger(
        gdp_mu(epsilon, delta), within=as_ledger(ledger, unit="entry", neighbours=neighbours)
    )
    T = PrivateOracle(holder, budget, noise_multiplier=z, release="separate", noise=noise)
    seed = as_seed(rng)
    found = _nothing(T.dimension)
    for i in range(k):
        U = _draw(seed, i, T.dimension, L)  # line 4, initialization
        for _ in range(R):
            # Lines 6 to 8: power iteration, noise calibration, normalization. D is subtracted from
            # the noisy image.
            U = _normalise(_image(T, found, U), U)
        values = T.value(U) - found.value(U)  # line 10, with noise ν‖u‖∞³
        found = _append(found, values, U)  # lines 10 and 11, deflation
    return found


def _check(T: Any, k: int, L: int, R: int) -> Any:
    """Return an oracle of order 3; raise for another order, or counts that are no counts."""
    check_count("k", k, 1, T.dimension, f" for a tensor of dimension {T.dimension}")
    check_count("L", L)
    check_count("R", R)
    if T.order != 3:
        raise ValueError(
            f"The paper's algorithms take tensors of order 3. Got order {T.order}. Use "
            "odeco.decompose."
        )
    return T


def _nothing(d: int) -> Components:
    """Return no components, in d dimensions."""
    return Components(np.empty(0), np.empty((d, 0)))


def _draw(seed: int, i: int, d: int, L: int) -> FloatArray:
    """Draw L starts uniformly from the unit sphere. Those of component i depend on the seed and i
    alone.
    """
    return uniform_starts(np.random.default_rng([seed, i]), (d,), L)


def _image(T: Any, found: Components, U: FloatArray) -> FloatArray:
    """Return (T − Σ λ̂ⱼ v̂ⱼ⊗³)(I, U, U), with the sum over the components found."""
    image: FloatArray = T.image(U)
    if found.n_components:
        return image - found.image(U)
    return image


def _normalise(images: FloatArray, U: FloatArray) -> FloatArray:
    """Divide every image by its norm; a zero image is replaced by the vector that it belongs to."""
    return normalise(images, (U.shape[0],), U)


def _inner(U: FloatArray, images: FloatArray) -> FloatArray:
    """Return ⟨u, T(I, u, u)⟩ = T(u, u, u) for every column."""
    values: FloatArray = np.einsum("il,il->l", U, images)
    return values


def _append(found: Components, values: FloatArray, U: FloatArray) -> Components:
    """Add the pair (λ̂, v̂) of the restart τ* whose value is largest."""
    best = int(np.argmax(values))
    return Components(
        np.append(found.weights, values[best]), np.vstack([found.vectors.T, U[:, best]]).T
    )

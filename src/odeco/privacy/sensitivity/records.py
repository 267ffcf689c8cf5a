"""How far the change of one record of a data set can move an answer."""

from __future__ import annotations

import math

import numpy as np

from odeco._util.types import FloatArray


def record_image(
    block: FloatArray,
    norm_bound: float,
    n_records: int,
    *,
    order: int = 3,
    replace: bool,
    nonnegative: bool = False,
) -> float:
    """Return (B^p/n) √λ_max((UᵀU)^∘(p−1)) for T = (1/n) Σ x ⊗ … ⊗ x: B^p/n for one unit vector; doubled if `replace`.

    At an even order, and for `nonnegative` records, replacing costs √2 instead of 2.

    Neighbours: record, added or removed (n public), or replaced.

    The power ∘(p−1) is entry by entry: the Hadamard square of the Gram matrix for p = 3.

    Derivation: A ↦ (A(I, u_τ, …, u_τ))_τ applies to every slice of a tensor A the linear map with rows u_τ ⊗ … ⊗ u_τ
    (p − 1 factors). Its largest singular value is the root of the largest eigenvalue of the Gram matrix of its rows,
    and ⟨u ⊗ … ⊗ u, w ⊗ … ⊗ w⟩ = ⟨u, w⟩^(p−1). So the answers move by at most that times the norm by which the tensor
    moves. Blanking x moves the tensor by x ⊗ … ⊗ x/n, of norm at most B^p/n. Replacing x by y moves it by
    (x ⊗ … ⊗ x − y ⊗ … ⊗ y)/n, whose squared norm is (|x|^2p + |y|^2p − 2⟨x, y⟩^p)/n². At odd p this is largest,
    (2B^p/n)², for y = −x. At even p the last term only helps: at most 2B^2p/n². So it does at every p if no entry of a
    record is negative, since then ⟨x, y⟩ ≥ 0.

    Tight: attained for one column (x = Bu, and y = −x at odd p), for orthogonal columns and for equal ones. For other
    blocks it is a bound: x ⊗ x is one of many matrices of norm |x|². For three vectors at 120° in a plane it is 15 %
    too high; for ten random ones in 100 dimensions about 5 %. At even p, or `nonnegative`, and with `replace` it is a
    bound.
    """
    return _replacing(order, replace, nonnegative) * (norm_bound**order / n_records * _leading_gain(block, order - 1))


def record_value(
    block: FloatArray,
    norm_bound: float,
    n_records: int,
    *,
    order: int = 3,
    replace: bool,
    nonnegative: bool = False,
) -> float:
    """Return (B^p/n) √λ_max((UᵀU)^∘p) for T(u, …, u) of T = (1/n) Σ x ⊗ … ⊗ x: B^p/n for one unit vector.

    Replacing costs 2 times that at an odd order; at an even order, and for `nonnegative` records, √2 times for a block,
    and nothing more for one column.

    Neighbours: record, added or removed (n public), or replaced.

    Derivation: as for `record_image`, with the linear functionals A ↦ ⟨A, u_τ ⊗ … ⊗ u_τ⟩ (p factors). At even p every
    ⟨x, u⟩^p is between 0 and (B|u|)^p, so two of them are never further apart than the larger.
    For records without negative entries, let v and w be the positive and the negative part of u: then ⟨x, u⟩^p is at
    most (B|v|)^p, and at odd p at least −(B|w|)^p. As |v|² + |w|² = |u|² and p ≥ 2, |v|^p + |w|^p ≤ |u|^p.

    Tight: attained for one column and for orthogonal or equal columns (even p, or `nonnegative`, with `replace`: for
    one column without negative entries, and for two or more such orthogonal ones).
    """
    single = replace and (order % 2 == 0 or nonnegative) and block.shape[1] == 1
    factor = 1.0 if single else _replacing(order, replace, nonnegative)
    return factor * (norm_bound**order / n_records * _leading_gain(block, order))


def record_core(
    matrix: FloatArray,
    norm_bound: float,
    n_records: int,
    *,
    order: int = 3,
    replace: bool,
    open_axis: bool = False,
    nonnegative: bool = False,
) -> float:
    """Return (B|W|)^p/n for T(W, …, W), or B^p|W|^(p−1)/n for T(I, W, …, W) (`open_axis`).

    |W| is the largest singular value. Replacing costs 2 times that at an odd order, √2 times at an even one and for
    `nonnegative` records.

    Neighbours: record, added or removed (n public), or replaced. The norm is that of the whole array.

    Derivation: the core of x ⊗ … ⊗ x is y ⊗ … ⊗ y with y = Wᵀx, of norm |y|^p ≤ (B|W|)^p; with an open axis one
    factor is x itself. Replacing as in `record_image`: T ↦ T(W, …, W) is linear, with largest singular value |W|^p.

    Tight: attained by x along the leading left singular vector of W, and y = −x; at an even order if the two
    leading singular values are equal, as for orthonormal columns.
    """
    gain = float(np.linalg.norm(matrix, 2)) ** (order - open_axis)
    return _replacing(order, replace, nonnegative) * norm_bound**order / n_records * gain


def record_entries(
    norm_bound: float, n_records: int, *, order: int = 3, replace: bool, nonnegative: bool = False
) -> float:
    """Return B^p/n for the tensor (1/n) Σ x ⊗ … ⊗ x itself; if `replace`, 2 times that.

    At an even order, and for `nonnegative` records, to replace costs √2 times that.

    Neighbours: record, added or removed (n public), or replaced. It holds for the whole array and, being no larger
    there, for each set of indices stored once. Order 2 is the second moment.

    Derivation: |x ⊗ … ⊗ x| = |x|^p; replacing as in `record_image`.

    Tight: attained by x along an axis, with y = −x, or y along another axis at an even order or `nonnegative`.
    """
    return _replacing(order, replace, nonnegative) * norm_bound**order / n_records


def _replacing(order: int, replace: bool, nonnegative: bool) -> float:
    """Return how many times the norm of one record's tensor two records' tensors can be apart."""
    if not replace:
        return 1.0
    return math.sqrt(2) if order % 2 == 0 or nonnegative else 2.0


def _leading_gain(block: FloatArray, power: int) -> float:
    """Return √λ_max((UᵀU)^∘power), the power entry by entry."""
    # The block is scaled to size 1 first, so that no power underflows.
    largest = float(np.abs(block).max(initial=0.0)) or 1.0
    scaled = block / largest
    gram = scaled.T @ scaled
    return largest**power * math.sqrt(max(float(np.linalg.eigvalsh(gram**power)[-1]), 0.0))

"""How far one neighbour can move an answer: the sensitivities that data holders declare.

A *neighbour relation* says which change of the data a guarantee hides. The *sensitivity* of an
answer is the largest Euclidean distance between the answers of two neighbours, all numbers that are
released together taken as one vector. It must hold for every pair of neighbours, so it depends on
the query, which is public, and never on the data.

Two relations concern one entry of a symmetric tensor, two concern one record of a data set:

* **literal**: T' = T ± symmetrize(e_i ⊗ e_j ⊗ …), the sum over all p! orders of the indices: the
  paper's Definition 4.2. Where indices coincide the terms coincide too, so a diagonal entry moves
  by p!.
* **distinct entry**: the number stored for one set of indices {i, j, …} changes by at most 1,
  together with its mirror images.
* **record, added or removed**: in (1/n) Σ x ⊗ x ⊗ …, with every record's norm at most B, one record
  is blanked, so that it adds nothing, or a blank record is filled. The divisor n is public and
  stays the same.
* **record, replaced**: one record takes any other value of norm at most B.

If entries may change by more than 1, multiply. A block U holds one query in every column, and its
answers are released together. Every docstring states the bound, its derivation, and whether it is
attained. Rounding errors, a few units in the last place, are within the room that
`odeco.privacy.gdp_mu` leaves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from odeco._util.types import FloatArray, IndexArray

#: Above this dimension the joint maxima over pairs and triples give way to the bounds by Hölder's
#: inequality.
EXACT_DIMENSION = 1000


# ---- one entry of a symmetric tensor, as the paper defines neighbours ----------------------------


def literal_image(block: FloatArray, order: int = 3) -> float:
    """Return p! max_i √(Σ_τ u_iτ^(2p−2)), the sensitivity of T(I, u, …, u) for all columns u:
    6‖u‖∞² for one and p = 3.

    Neighbours: literal.

    Derivation: let E = symmetrize(e_i₁ ⊗ … ⊗ e_iₚ). Each of its p! terms sends u to one basis
    vector times a product of p − 1 entries of u, so column τ of E(I, u, …, u) is a sum of p!
    vectors of that length. By the triangle inequality for the whole block, its norm is at most p!
    times the largest √(Σ_τ Π_s u²_{i_s τ}) over p − 1 indices, and by Hölder's inequality this is
    at most p! max_i √(Σ_τ u_iτ^(2p−2)).

    Tight: attained by i₁ = … = iₚ = i, where E = p! e_i ⊗ … ⊗ e_i.
    """
    return float(math.factorial(order) * _row_norms(block, 2 * order - 2).max() ** (order - 1))


def literal_value(block: FloatArray, order: int = 3) -> float:
    """Return p! max_i √(Σ_τ u_iτ^(2p)), the sensitivity of T(u, …, u) for all columns u: 6‖u‖∞³ for
    one and p = 3.

    Neighbours: literal.

    Derivation: E(u, …, u) = p! Π_s u_{i_s}, and Hölder's inequality over the columns.

    Tight: attained by equal indices.
    """
    return float(math.factorial(order) * _row_norms(block, 2 * order).max() ** order)


def literal_core(matrix: FloatArray, order: int = 3, *, open_axis: bool = False) -> float:
    """Return p! max_i |W_i|^p for T(W, …, W), or p! max_i |W_i|^(p−1) for T(I, W, …, W)
    (`open_axis`).

    W_i are the rows of W. Neighbours: literal. The norm is that of the whole array, every entry
    counted as often as it stands there.

    Derivation: the core of e_i ⊗ e_j ⊗ … is W_i ⊗ W_j ⊗ …, of norm |W_i||W_j|⋯; with an open axis
    the first factor is the basis vector e_i instead, of norm 1. E has p! such terms: triangle
    inequality.

    Tight: attained by equal indices.
    """
    return float(math.factorial(order) * _row_norms(matrix, 2).max() ** (order - open_axis))


# ---- one distinct entry of a symmetric tensor ----------------------------------------------------


def distinct_entry_image(block: FloatArray, order: int = 3) -> float:
    """Return the sensitivity of T(I, u, …, u) for all columns u together.

    Neighbours: distinct entry.

    Statement: for one column and p = 3, with a ≥ b ≥ c the largest |u_i|, the largest of 2√(a²b² +
    a²c² + b²c²), of √(4a²b² + a⁴) and of a²; never above 2√3 a². For a block and p = 3, with G =
    (U∘U)(U∘U)ᵀ, the root of the largest of 4(G_ij + G_ik + G_jk), of 4G_ij + G_ii and of G_ii, over
    different i, j, k.

    Derivation: let the indices be different numbers s with multiplicities m_s, Σ m_s = p. E is the
    sum of p!/Π m_s! different terms; those whose first index is s are a share m_s/p of them, so
    E(I, u, …, u) has at place s the number (p!/Π m!) (m_s/p) Π_t u_t^(m_t − [t = s]), and zeros
    elsewhere. For p = 3: (i, j, k) gives 2u_ju_k, 2u_iu_k, 2u_iu_j; (i, i, j) gives 2u_iu_j at i
    and u_i² at j; (i, i, i) gives u_i². Sum the squares over places and columns. For one column
    each is a polynomial with positive coefficients in |u|, so only the largest entries matter, and
    all ways to share out the multiplicities among them are tried.

    Tight: attained for one column at every order, and for a block at p = 3 up to dimension
    `EXACT_DIMENSION`, by trying all pairs and triples. Otherwise a bound: the formula for one
    column with |u_i| replaced by (Σ_τ u_iτ^(2p−2))^(1/(2p−2)), since by Hölder's inequality Σ_τ Π_s
    u_sτ^(2k_s) with Σ k_s = p − 1 is at most the product of these to the powers 2k_s.
    """
    if order == 3 and block.shape[1] > 1 and block.shape[0] <= EXACT_DIMENSION:
        largest = float(np.abs(block).max(initial=0.0)) or 1.0
        squares = (block / largest) ** 2
        gram = squares @ squares.T
        return largest**2 * math.sqrt(_heaviest(4 * gram, np.diagonal(gram)))
    return _distinct_image_of_profile(_row_norms(block, 2 * order - 2), order)


def distinct_entry_value(block: FloatArray, order: int = 3) -> float:
    """Return the sensitivity of T(u, …, u) for all columns u together.

    Neighbours: distinct entry.

    Statement: for one column and p = 3 the largest of 6abc, 3a²b and a³, with a ≥ b ≥ c the largest
    |u_i|.

    Derivation: E(u, …, u) = (p!/Π m_s!) Π_s u_s^{m_s} for indices s with multiplicities m_s; the
    largest entries are shared out in every way. For a block, |u_i| is replaced by (Σ_τ
    u_iτ^(2p))^(1/(2p)): Hölder's inequality.

    Tight: attained for one column. For a block it is a bound, attained if all columns have equal
    absolute values.
    """
    return _distinct_value_of_profile(_row_norms(block, 2 * order), order)


def distinct_entry_core(matrix: FloatArray, *, open_axis: bool = False) -> float:
    """Return the sensitivity of T(W, W, W), or of T(I, W, W) (`open_axis`), for a tensor of order
    3.

    Neighbours: distinct entry. The norm is that of the whole array, every entry counted as often as
    it stands there.

    Statement: with g = W Wᵀ, the root of the largest, over different i, j, k, of

    * T(W, W, W): 6 per(g restricted to i, j, k), of 3g_ii²g_jj + 6g_ii g_ij², and of g_ii³;
    * T(I, W, W): 2(P_ij + P_ik + P_jk) with P_ij = g_ii g_jj + g_ij², of 2P_ij + g_ii², and of
      g_ii².

    These are at most 6 max|W_i|³ and 2√3 max|W_i|², reached only where rows of W are parallel; for
    a random orthonormal W (300 x 5) they are about half and three quarters of that.

    Derivation: the core of E is Σ W_σ(i) ⊗ W_σ(j) ⊗ W_σ(k) over the different orders σ. The inner
    product of two terms is a product of three entries of g; summed over all pairs of 6 orders they
    make 6 times the permanent of g on {i, j, k} (Σ over orders of Π g), and for (i, i, j), with 3
    orders, 3 g_ii² g_jj from equal terms and 6 g_ii g_ij² from the others. With an open axis the
    slice at i is W_jW_kᵀ + W_kW_jᵀ, of squared norm 2P_jk, and so on; (i, i, j) has the slice
    W_iW_jᵀ + W_jW_iᵀ at i and W_iW_iᵀ at j.

    Tight: attained, by trying all pairs and triples (those that cannot win are skipped), up to
    dimension `EXACT_DIMENSION`. Above it, the bounds by the three largest row norms |W_i|.
    """
    norms = _row_norms(matrix, 2)
    largest = float(norms.max()) or 1.0
    if matrix.shape[0] > EXACT_DIMENSION:
        return (_distinct_image_of_profile if open_axis else _distinct_value_of_profile)(norms, 3)
    gram = (matrix / largest) @ (matrix / largest).T
    if open_axis:
        squares = np.diagonal(gram)
        return largest**2 * math.sqrt(
            _heaviest(2 * (np.outer(squares, squares) + gram**2), squares**2)
        )
    return largest**3 * math.sqrt(_heaviest_core(gram))


# ---- helpers -------------------------------------------------------------------------------------


def _row_norms(block: FloatArray, power: int) -> FloatArray:
    """Return (Σ_τ |u_iτ|^power)^(1/power) for every row i."""
    largest = float(np.abs(block).max(initial=0.0)) or 1.0
    norms: FloatArray = largest * np.sum(np.abs(block / largest) ** power, axis=1) ** (1 / power)
    return norms


def _distinct_image_of_profile(profile: FloatArray, order: int) -> float:
    """Return the distinct-entry sensitivity of an image of one vector with these absolute
    values.
    """
    best = 0.0
    for arrangements, counts, entries in _shares(profile, order):
        places = [
            m
            / order
            * math.prod(
                u ** (k - (s == t)) for t, (k, u) in enumerate(zip(counts, entries, strict=True))
            )
            for s, m in enumerate(counts)
        ]
        best = max(best, arrangements * math.hypot(*places))
    return best


def _distinct_value_of_profile(profile: FloatArray, order: int) -> float:
    """Return the distinct-entry sensitivity of the value at one vector with these absolute
    values.
    """
    return max(
        arrangements * math.prod(u**m for m, u in zip(counts, entries, strict=True))
        for arrangements, counts, entries in _shares(profile, order)
    )


def _shares(
    profile: FloatArray, order: int
) -> Iterator[tuple[float, tuple[int, ...], list[float]]]:
    """Yield every way to share `order` indices among the largest entries of `profile`.

    Each is given by how many arrangements of the indices there are, their multiplicities, and the
    entries.
    """
    top = [float(entry) for entry in np.sort(profile)[::-1][:order]]
    for n_different in range(1, len(top) + 1):
        for counts in itertools.product(range(1, order + 1), repeat=n_different):
            if sum(counts) == order:
                arrangements = math.factorial(order) / math.prod(math.factorial(m) for m in counts)
                yield arrangements, counts, top[:n_different]


def _heaviest(edges: FloatArray, vertices: FloatArray) -> float:
    """Return the largest of e_ij + e_ik + e_jk, of e_ij + v_i and of v_i over different i, j, k.

    A triangle is at most three times its heaviest edge.
    """
    edges = edges.copy()
    np.fill_diagonal(edges, -np.inf)
    best = float(max(vertices.max(), (edges + vertices[:, None]).max()))

    def best_third(i: IndexArray, j: IndexArray) -> float:
        return float((edges[i, j, None] + edges[i] + edges[j]).max())

    return _best_triple(3 * edges, best_third, best)


def _heaviest_core(gram: FloatArray) -> float:
    """Return the largest squared norm of the core of a distinct entry, given g = W Wᵀ.

    The permanent on i, j, k is at most g_ii g_jj g_kk (1 + 3c² + 2c³), c the largest |cosine|
    between two of the rows.
    """
    squares = np.diagonal(gram)
    pairs = 3 * squares[:, None] ** 2 * squares[None, :] + 6 * squares[:, None] * gram**2
    np.fill_diagonal(pairs, squares**3)
    products = np.outer(squares, squares)
    cosines = np.minimum(np.abs(gram) / np.sqrt(np.where(products > 0, products, 1.0)), 1.0)
    limits = 6 * squares.max() * products * (1 + 3 * cosines**2 + 2 * cosines**3)
    np.fill_diagonal(limits, -np.inf)

    def best_third(i: IndexArray, j: IndexArray) -> float:
        own = gram[i, j, None]
        permanents = squares * (products[i, j, None] + own**2) + 2 * own * gram[i] * gram[j]
        permanents += squares[i, None] * gram[j] ** 2 + squares[j, None] * gram[i] ** 2
        lines = np.arange(i.size)
        permanents[lines, i] = permanents[lines, j] = 0.0
        return 6 * float(permanents.max())

    return _best_triple(limits, best_third, float(pairs.max()))


def _best_triple(
    limits: FloatArray, best_third: Callable[[IndexArray, IndexArray], float], best: float
) -> float:
    """Return the largest weight of three different indices i, j, k, or `best` if that is larger.

    No triple may weigh more than the largest of `limits` at its three pairs. So pairs are tried
    from the highest limit down, each with its best third index, until the next limit cannot win any
    more.
    """
    if limits.shape[0] < 3:
        return best
    first = np.argmax(limits, keepdims=True)
    best = max(best, best_third(*np.unravel_index(first.ravel(), limits.shape)))
    rows, columns = np.nonzero(np.triu(limits > best))
    falling = np.argsort(-limits[rows, columns], kind="stable")
    for start in range(0, falling.size, 64):
        chunk = falling[start : start + 64]
        if limits[rows[chunk[0]], columns[chunk[0]]] <= best:
            break
        best = max(best, best_third(rows[chunk], columns[chunk]))
    return best


@dataclass(frozen=True)
class EntrySensitivities:
    """The sensitivities of a symmetric tensor, of which a neighbour changes one entry.

    Attributes
    ----------
    literal : bool
        Whether neighbours are those of the paper (literal), or differ in one distinct entry.
    order : int
        The order p of the tensor.
    change : float
        How far a neighbour may move an entry.
    """

    literal: bool
    order: int = 3
    change: float = 1.0

    moment: ClassVar[None] = None  # a tensor has no rows, and so no second moment

    def image(self, block: FloatArray) -> float:
        """Return the sensitivity of T(I, u, …, u) for all columns u together."""
        return self.change * (literal_image if self.literal else distinct_entry_image)(
            block, self.order
        )

    def value(self, block: FloatArray) -> float:
        """Return the sensitivity of T(u, …, u) for all columns u together."""
        return self.change * (literal_value if self.literal else distinct_entry_value)(
            block, self.order
        )

    def core(self, matrix: FloatArray, *, open_axis: bool = False) -> float:
        """Return the sensitivity of T(W, W, W), or of T(I, W, W) (`open_axis`), at order 3."""
        return self.change * (literal_core if self.literal else distinct_entry_core)(
            matrix, open_axis=open_axis
        )

    @property
    def noise_in_image(self) -> float:
        """The noise in a coordinate of an image at order 3 if all entries are released with noise
        1/μ, times μ.
        """
        return math.sqrt(2) * self.change


@dataclass(frozen=True)
class RecordSensitivities:
    """The sensitivities of T = (1/n) Σ x ⊗ … ⊗ x, of which a neighbour changes one record.

    Neighbours: record, added or removed (n public), or replaced.

    Attributes
    ----------
    norm_bound : float
        The bound B on the norm of a record.
    n_records : int
        The number n of records.
    order : int
        The order p of the tensor.
    replace : bool
        Whether a record may be replaced, or only blanked.
    nonnegative : bool
        Whether no entry of a record is negative.

    Notes
    -----
    *Replacing.* Blanking x moves the tensor by x ⊗ … ⊗ x/n, of norm at most B^p/n. Replacing x by y
    moves it by (x ⊗ … ⊗ x − y ⊗ … ⊗ y)/n, whose squared norm is (|x|^2p + |y|^2p − 2⟨x, y⟩^p)/n².
    At odd p this is largest, (2B^p/n)², for y = −x. At even p the last term only helps: at most
    2B^2p/n². So it does at every p if no entry of a record is negative, since then ⟨x, y⟩ ≥ 0. So
    replacing costs 2 times as much as blanking at an odd order, and √2 times at an even order and
    for `nonnegative` records.
    """

    norm_bound: float
    n_records: int
    order: int = 3
    replace: bool = field(kw_only=True)
    nonnegative: bool = field(default=False, kw_only=True)

    def image(self, block: FloatArray) -> float:
        """Return (B^p/n) √λ_max((UᵀU)^∘(p−1)) for T(I, u, …, u) of all columns u: B^p/n for one
        unit vector.

        Replacing multiplies it. The power ∘(p−1) is entry by entry: the Hadamard square of the Gram
        matrix for p = 3.

        Derivation: A ↦ (A(I, u_τ, …, u_τ))_τ applies to every slice of a tensor A the linear map
        with rows u_τ ⊗ … ⊗ u_τ (p − 1 factors). Its largest singular value is the root of the
        largest eigenvalue of the Gram matrix of its rows, and ⟨u ⊗ … ⊗ u, w ⊗ … ⊗ w⟩ = ⟨u,
        w⟩^(p−1). So the answers move by at most that times the norm by which the tensor moves.

        Tight: attained for one column (x = Bu, and y = −x at odd p), for orthogonal columns and for
        equal ones. For other blocks it is a bound: x ⊗ x is one of many matrices of norm |x|². For
        three vectors at 120° in a plane it is 15 % too high; for ten random ones in 100 dimensions
        about 5 %. At even p, or `nonnegative`, and with `replace` it is a bound.
        """
        return self._replacing(self.order) * (
            self._blanking(self.order) * _leading_gain(block, self.order - 1)
        )

    def value(self, block: FloatArray) -> float:
        """Return (B^p/n) √λ_max((UᵀU)^∘p) for T(u, …, u) of all columns u: B^p/n for one unit
        vector.

        Replacing multiplies it, except at an even order, and for `nonnegative` records, for one
        column.

        Derivation: as for `image`, with the linear functionals A ↦ ⟨A, u_τ ⊗ … ⊗ u_τ⟩ (p factors).
        At even p every ⟨x, u⟩^p is between 0 and (B|u|)^p, so two of them are never further apart
        than the larger. For records without negative entries, let v and w be the positive and the
        negative part of u: then ⟨x, u⟩^p is at most (B|v|)^p, and at odd p at least −(B|w|)^p. As
        |v|² + |w|² = |u|² and p ≥ 2, |v|^p + |w|^p ≤ |u|^p.

        Tight: attained for one column and for orthogonal or equal columns (even p, or
        `nonnegative`, with `replace`: for one column without negative entries, and for two or more
        such orthogonal ones).
        """
        one_sided = block.shape[1] == 1 and (self.order % 2 == 0 or self.nonnegative)
        factor = 1.0 if one_sided else self._replacing(self.order)
        return factor * (self._blanking(self.order) * _leading_gain(block, self.order))

    def core(self, matrix: FloatArray, *, open_axis: bool = False) -> float:
        """Return (B|W|)^p/n for T(W, …, W), or B^p|W|^(p−1)/n for T(I, W, …, W) (`open_axis`);
        replacing multiplies it.

        |W| is the largest singular value. The norm is that of the whole array.

        Derivation: the core of x ⊗ … ⊗ x is y ⊗ … ⊗ y with y = Wᵀx, of norm |y|^p ≤ (B|W|)^p; with
        an open axis one factor is x itself. Replacing: T ↦ T(W, …, W) is linear, with largest
        singular value |W|^p.

        Tight: attained by x along the leading left singular vector of W, and y = −x; at an even
        order if the two leading singular values are equal, as for orthonormal columns.
        """
        return self.entries() * float(np.linalg.norm(matrix, 2)) ** (self.order - open_axis)

    def entries(self, order: int | None = None) -> float:
        """Return B^p/n for the tensor itself; replacing multiplies it. With `order` for a moment of
        that order.

        It holds for the whole array and, being no larger there, for each set of indices stored
        once. Where each stored entry is multiplied by the root of its number of arrangements, the
        norm is that of the whole array. Order 2 is the second moment.

        Derivation: |x ⊗ … ⊗ x| = |x|^p.

        Tight: attained by x along an axis, with y = −x, or y along another axis at an even order or
        `nonnegative`.
        """
        order = self.order if order is None else order
        return self._replacing(order) * self.norm_bound**order / self.n_records

    @property
    def noise_in_image(self) -> float:
        """The noise in a coordinate of an image, across the vector, if all entries are released
        with 1/μ; times μ.
        """
        return self.entries() / math.sqrt(self.order)

    @property
    def moment(self) -> float:
        """The sensitivity of the second moment in the scale of the weights.

        A component of weight λ in the moment of order p has at least λ/B^(p−2) in the second, as
        |⟨x, v⟩| ≤ B.
        """
        return self.entries(2) * self.norm_bound ** (self.order - 2)

    def _blanking(self, order: int) -> float:
        return self.norm_bound**order / self.n_records

    def _replacing(self, order: int) -> float:
        """Return how many times the norm of one record's tensor two records' tensors can be
        apart.
        """
        signed = order % 2 == 1 and not self.nonnegative
        return neighbour_factor(replace=self.replace, signed=signed)


def neighbour_factor(*, replace: bool, signed: bool) -> float:
    """Return how far a neighbour can move a sum, as a multiple of the largest norm b of what a
    record adds.

    Derivation: blanking a record that adds u moves the sum by |u| ≤ b. Replacing it, so that it
    adds v instead, moves the sum by |u − v| ≤ 2b. If ⟨u, v⟩ ≥ 0 for any two records, as where no
    number is negative (they are not `signed`), |u − v|² = |u|² + |v|² − 2⟨u, v⟩ ≤ 2b², so √2 b.
    """
    if not replace:
        return 1.0
    if signed:
        return 2.0
    return math.sqrt(2)


def _leading_gain(block: FloatArray, power: int) -> float:
    """Return √λ_max((UᵀU)^∘power), the power entry by entry."""
    # The block is scaled to size 1 first, so that no power underflows.
    largest = float(np.abs(block).max(initial=0.0)) or 1.0
    scaled = block / largest
    gram = scaled.T @ scaled
    return largest**power * math.sqrt(max(float(np.linalg.eigvalsh(gram**power)[-1]), 0.0))

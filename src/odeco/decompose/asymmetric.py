"""Decompose an asymmetric tensor: by a least-squares CP fit, or by the power method on its
symmetric embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import as_generator, check_count, check_tolerance
from odeco._util.types import FloatArray, RngLike
from odeco.cp.asymmetric import (
    AsymmetricProblem,
    SparseProblem,
    explained_by_terms,
    term_angle_errors,
)
from odeco.cp.overcomplete import fit_from_random_starts
from odeco.cp.problem import Left, Stage
from odeco.cp.rank import MAX_AUTOMATIC, n_identifiable_terms
from odeco.cp.selection import fit_rank, select_rank
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    Structure,
    or_cancelling,
    structure_of,
)
from odeco.decompose.symmetric import (
    Method,
    choose_method,
    described,
    in_own_unit,
    require_signal,
    sorted_fit,
    usable_tolerance,
    warn_if_unconverged,
)
from odeco.display.progress import following
from odeco.power.power_method import PowerSolver, Schedule, run
from odeco.tensors.asymmetric import (
    AsymmetricTensor,
    SparseAsymmetricTensor,
    factors_of,
    split_terms,
    term_weights,
)
from odeco.tensors.components import Components
from odeco.tensors.entries import InUnit, check_axes, check_symmetric


def decompose_asymmetric(
    tensor: Any,
    n_components: int | Literal["auto"],
    *,
    symmetric: Sequence[int] | None = None,
    method: Method = "auto",
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    tol: float = 1e-10,
    rng: RngLike = None,
    callback: Callable[[PowerSolver | Stage], object] | None = None,
    progress: bool = False,
) -> AsymmetricDecomposition:
    """Decompose an asymmetric d₁ x d₂ x … array into terms λ a ⊗ b ⊗ ….

    Terms need not be orthogonal, and their number need not be known: all are fitted together by
    least squares, and the result says what kind they are and how far to trust it. There may be more
    terms than the smallest axis has entries, as long as a random tensor of this shape determines
    them; ``"auto"`` finds at most as many as the second largest axis has entries, because its
    unfolding must show them. A fit whose terms cancel each other, with weights that may grow
    without bound, says so.

    A sparse tensor is given as a `SparseAsymmetricTensor`. Its zeros are entries too; only a small
    core is ever dense.

    A tensor that is symmetric along some of its axes, such as covariance matrices of several
    groups, has terms with the same vector along all of them: with ``symmetric=(0, 1)`` the terms
    are λ a ⊗ a ⊗ c, exactly, and noise is taken to have the same symmetry. If noise has broken it,
    average first with ``symmetrize(T, axes=(0, 1))``, which also reduces the noise.

    With ``method="power"``, which `n_restarts`, `n_iterations` and ``tol=0`` imply, this is the
    power method, for factors that are orthogonal: the array is treated as a symmetric tensor of
    dimension d₁ + d₂ + …, which is never formed; see `AsymmetricTensor`. It needs the number of
    terms.

    Parameters
    ----------
    tensor : array, AsymmetricTensor or SparseAsymmetricTensor
        The tensor.
    n_components : int or "auto"
        The number of terms; ``"auto"`` selects it.
    symmetric : sequence of int, optional
        The axes along which the tensor is symmetric.
    method, n_restarts, n_iterations, tol, rng, callback, progress
        As of `decompose`.

    Notes
    -----
    What is left is compared with Gaussian noise of independent entries, whose largest value at
    products of unit vectors is bounded as `odeco.cp.rank.product_noise` says. In a sparse tensor a
    few entries that are far larger than all others count as terms of their own, because such noise
    would not have them. In a `Stage` or a `RankError`, a term is a component with the weight λ and
    the vector (a, b, …)/√p.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> T = np.zeros((2, 3, 4))
    >>> T[0, 1, 2], T[1, 0, 3] = 5.0, -2.0
    >>> result = odeco.decompose_asymmetric(T, 2, rng=0)
    >>> result.weights.round(10), [factor.shape for factor in result.factors]
    (array([5., 2.]), [(2, 2), (3, 2), (4, 2)])
    >>> result.verdict
    '2 components, orthogonal; they explain 100 % of T, nothing is left'

    Two covariance matrices with common eigenvectors:

    >>> T = np.stack([np.diag([3.0, 1.0]), np.diag([1.0, 2.0])], axis=-1)
    >>> a, same, c = odeco.decompose_asymmetric(T, 2, symmetric=(0, 1), rng=0).factors
    >>> np.array_equal(a, same), abs(a).round(6)
    (True, array([[1., 0.],
           [0., 1.]]))
    """
    known = isinstance(tensor, AsymmetricTensor | SparseAsymmetricTensor)
    if known:
        entries: AsymmetricTensor | SparseAsymmetricTensor = tensor
    else:
        entries = AsymmetricTensor(tensor)
    oracle = InUnit(entries)
    generator = as_generator(rng)
    needs_power = {
        "n_restarts": n_restarts is not None,
        "n_iterations": n_iterations is not None,
        "tol=0": check_tolerance(tol) == 0,
    }
    shared = () if symmetric is None else check_axes(symmetric, entries.parts)
    if shared:
        needs_power_method = method == "power" or any(needs_power.values())
        _check_shared(entries, shared, needs_power_method=needs_power_method)
    chosen = choose_method(method, needs_power)
    automatic = isinstance(n_components, str) and n_components == "auto"
    if chosen == "power" and automatic:
        raise ValueError(
            'n_components="auto" needs method="cp" for an asymmetric tensor. Got method="power", '
            "n_restarts, n_iterations or tol=0. Leave them out, or pass n_components as an int."
        )
    most = min(oracle.parts)
    if chosen == "cp":
        most = max(most, n_identifiable_terms(oracle.parts, shared))
    if automatic:  # the rank must show in two unfoldings, which also makes the terms unique
        most = min(most, sorted(oracle.parts)[-2], MAX_AUTOMATIC)
    k = most
    if not automatic:
        k = check_count(
            "n_components", n_components, 1, most, f" for a tensor of shape {entries.parts}"
        )
    if chosen == "cp":
        total = None if automatic else k
        with oracle.put_back_errors(), following(callback, progress, total) as report:
            found = _terms_together(
                oracle, entries, shared, k, generator, tol, report, automatic=automatic
            )
        found = in_own_unit(found, oracle)
        warn_if_unconverged(found, stacklevel=2)
        return AsymmetricDecomposition(
            found.weights,
            tuple(factors_of(found.components, entries.parts)),
            found.residuals,
            found.converged,
            found.explained,
            found.rank_evidence,
            found.structure,
        )
    plan = Schedule.default(
        oracle.dimension,
        k,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        tolerance=usable_tolerance(tol, oracle),
    )
    with following(callback, progress, k) as report:
        return _terms_by_loop(oracle, entries, plan, generator, report)


def _terms_by_loop(
    oracle: InUnit,
    entries: AsymmetricTensor | SparseAsymmetricTensor,
    plan: Schedule,
    generator: np.random.Generator,
    callback: Callable[[PowerSolver], object] | None,
) -> AsymmetricDecomposition:
    """Find terms one after another, as eigenvectors of the symmetric embedding."""
    with oracle.put_back_errors():
        search = run(oracle, plan, rng=generator, callback=callback)
    found = described(search, tolerance=plan.tolerance or math.sqrt(oracle.rounding))
    terms = Components(term_weights(found.weights, found.order), found.vectors, found.order)
    explained = explained_by_terms(oracle, terms)
    found = in_own_unit(found, oracle)
    warn_if_unconverged(found, stacklevel=3)
    weights = term_weights(found.weights, found.order)
    first, *others = split_terms(found.vectors, entries.parts)
    return AsymmetricDecomposition(
        np.abs(weights),
        (first * np.sign(weights), *others),
        found.residuals,
        found.converged,
        explained,
    )


def _check_shared(
    entries: AsymmetricTensor | SparseAsymmetricTensor,
    shared: tuple[int, ...],
    *,
    needs_power_method: bool,
) -> None:
    """Raise unless a tensor can be decomposed with the same vectors along some of its axes."""
    if len(shared) == entries.order:
        raise ValueError(
            f"`symmetric` must leave out an axis. Got all axes, {shared}. Call odeco.decompose."
        )
    if isinstance(entries, SparseAsymmetricTensor):
        raise TypeError(
            "`symmetric` needs a dense array. Got a SparseAsymmetricTensor. Leave it out."
        )
    check_symmetric(entries.entries, shared)
    if needs_power_method:
        raise ValueError(
            '`symmetric` needs method="cp". Got method="power", n_restarts, n_iterations or tol=0. '
            "Leave them out."
        )


def _terms_together(
    oracle: InUnit,
    entries: AsymmetricTensor | SparseAsymmetricTensor,
    symmetric: tuple[int, ...],
    n_components: int,
    generator: np.random.Generator,
    tolerance: float,
    report: Callable[[Stage], object] | None,
    *,
    automatic: bool,
) -> Decomposition:
    """Fit all terms of an asymmetric tensor together, `n_components` or at most as many, with their
    structure.
    """
    oracle.take_out_norm(generator)
    tensor = entries.over_power_of_two(oracle.exponent)
    if isinstance(tensor, SparseAsymmetricTensor):
        problem: AsymmetricProblem = SparseProblem(tensor)
    else:
        problem = AsymmetricProblem(tensor, symmetric)
    if automatic:
        selection = select_rank(problem, generator, max_rank=n_components, callback=report)
        require_signal(oracle, selection.evidence, selection.fit.components)
    elif n_components <= max(tensor.parts):
        selection = fit_rank(problem, n_components, generator, callback=report)
    else:
        selection = fit_from_random_starts(problem, n_components, generator, callback=report)
    terms = selection.fit.components.sorted_by_weight()
    deviation = selection.deviation if selection.left != "nothing" else 0.0
    errors = term_angle_errors(terms, tensor.parts, deviation, symmetric)
    factors = factors_of(terms, tensor.parts)
    structure = _structure_of_terms(factors, errors, left=selection.left, complete=automatic)
    return replace(
        sorted_fit(tensor, selection, tolerance, np.sqrt(np.mean(np.square(errors), axis=0))),
        explained=explained_by_terms(tensor, terms),
        structure=or_cancelling(structure, problem.gram(terms.vectors), terms.weights),
    )


def _structure_of_terms(
    factors: Sequence[FloatArray], angle_errors: Sequence[FloatArray], *, left: Left, complete: bool
) -> Structure:
    """Tell whether the terms of an asymmetric tensor are orthogonal along every axis, as
    `structure_of` does.
    """
    axes = [
        structure_of(vectors, errors, left=left, complete=complete)
        for vectors, errors in zip(factors, angle_errors, strict=True)
    ]
    worst = max(
        range(len(axes)),
        key=lambda axis: (axes[axis].kind != "orthogonal", axes[axis].largest_cosine),
    )
    chosen = axes[worst]
    k = factors[0].shape[1]
    sizes = [len(vectors) for vectors in factors]
    if k < 2 or chosen.kind == "unexplained":
        return chosen
    if k > min(sizes):
        reason = f"axis {int(np.argmin(sizes))} has {min(sizes)} entries; {chosen.reason}"
        return replace(chosen, kind="overcomplete", reason=reason)
    return replace(chosen, reason=f"along axis {worst}, {chosen.reason}")

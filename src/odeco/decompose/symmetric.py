"""Symmetric tensors: all components together, or by the loop, whitened or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import as_generator, check_choice, check_n_components, check_tolerance
from odeco._util.types import FloatArray, RngLike
from odeco.cp.gauss_newton import refine, standard_errors
from odeco.cp.rank import MOST_AUTOMATIC
from odeco.cp.selection import Judged, Stage, fit_given, judge
from odeco.cp.starts import fitted_weights
from odeco.cp.structure import judge_structure
from odeco.cp.whitening import Whitened, Whitener
from odeco.decompose.findings import Unit, described, explained_by, require_signal, sorted_fit, warn_if_unconverged
from odeco.decompose.loop import search_to_noise, usable_tolerance
from odeco.decompose.result import Decomposition
from odeco.display.progress import following
from odeco.power.schedule import Plan
from odeco.power.solver import Search, run
from odeco.tensors.components import Components
from odeco.tensors.dense import as_oracle
from odeco.tensors.oracle import Oracle
from odeco.tensors.units import InUnit

Whiten = Literal["auto", "tensor", "slice"] | Whitener | FloatArray | None


def decompose(
    tensor: Any,
    n_components: int | Literal["auto"],
    *,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    tol: float = 1e-10,
    whiten: Whiten = "auto",
    rng: RngLike = None,
    callback: Callable[[Search | Stage], object] | None = None,
    progress: bool = False,
) -> Decomposition:
    """Decompose a symmetric tensor into weights and unit vectors.

    Components need not be orthogonal, and their number need not be known: all are fitted together by least squares,
    started where the tensor itself suggests, and the result says what kind they are and how far to trust it. With
    ``whiten=None`` this is the robust tensor power method (Algorithm 1 of the paper).

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric array of order 3 or more, or anything that answers as one.
    n_components : int or "auto"
        The number k of components. ``"auto"`` keeps those that stand clear of the noise, and the result's
        `rank_evidence` says how sure that is, and which other numbers are not ruled out.
    n_restarts, n_iterations : int, optional
        The paper's L and R. By default L = 2k ln k, from 10 to 64, and R = 10 + log₂(d / tol). Whoever gives one of
        them asks for the paper's loop: ``whiten="auto"`` then means None.
    tol : float
        Relative residual at which a component has converged. Iteration then stops early, and the winner is polished to
        machine precision. 0 is the paper to the letter: exactly `n_iterations`, no polishing, and no ``"auto"``.
    whiten : "auto", None, "tensor", "slice", d x d array or Whitener
        ``"auto"`` fits all components together, orthogonal or not. None is the paper's loop, for orthogonal
        components, one after another. The others lead the loop to components that are linearly independent but not
        orthogonal: ``"tensor"`` makes a whitener from the tensor alone; ``"slice"`` too, with the span read off one
        random slice (Appendix B of the paper, less accurate under noise); an array is taken as a second moment of the
        same components. What the loop finds in whitened coordinates is then fitted to the tensor by least squares.
    rng : None, int or numpy.random.Generator
        Draws the starts. The same rng gives the same result on any number of threads.
    callback : callable, optional
        Receives the `Search` after every answer, or the `Stage` of the fit; both say what they are `doing`, and have
        `components`.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.

    Returns
    -------
    Decomposition
        Sorted by weight, largest first.

    Raises
    ------
    RankError
        If the tensor has fewer components than asked for; those found are in ``error.found``.

    Warns
    -----
    ConvergenceWarning
        If a residual is above the tolerance, with what to do.

    Notes
    -----
    An oracle that is not exact is always asked by the loop. Up to d components are looked for: where there are more,
    order 3 has no unique way to tell them apart by what is done here. At orders 4 and above they can be found by
    decomposing T as a tensor over pairs of indices, flattened, which is left to the caller.

    Deviations from Algorithm 1, where the loop is used: all restarts are iterated as one block; deflation is arithmetic
    on answers; convergence is judged from answers already received (unless ``tol=0``); at even orders, and where an
    iterate of an exact tensor loses ground, a shift is added so that it cannot cycle; at even orders weights keep their
    sign.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016, arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> T = odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense()
    >>> result = odeco.decompose(T, 2, rng=0)
    >>> result.weights, result.converged
    (array([3., 2.]), array([ True,  True]))
    """
    oracle, generator = InUnit(as_oracle(tensor)), as_generator(rng)
    if isinstance(whiten, str) and whiten == "auto":
        looped = n_restarts is not None or n_iterations is not None or check_tolerance(tol) == 0
        if not looped and oracle.exact and len(oracle.parts) == 1:
            unit = Unit.of(oracle, generator)
            with unit.kept(), following(callback, progress, n_components) as told:
                result = _decompose_together(unit, n_components, generator, check_tolerance(tol), told)
            result = unit.put_back(result)
            warn_if_unconverged(result, stacklevel=2)
            return result
        whiten = None
    if whiten is not None:
        settings = {"n_restarts": n_restarts, "n_iterations": n_iterations, "tol": tol}
        unit = Unit.of(oracle, generator)
        with unit.kept(), following(callback, progress, n_components) as told:
            result = _decompose_whitened(unit, n_components, whiten, generator, callback=told, **settings)
        return unit.put_back(result)
    automatic = isinstance(n_components, str) and n_components == "auto"
    most: Any = min(oracle.dimension, MOST_AUTOMATIC) if automatic else n_components
    plan = Plan.default(
        oracle.dimension,
        most,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        tolerance=usable_tolerance(tol, oracle),
        weigh="image" if oracle.exact else "reuse",
    )
    unit = Unit(oracle)
    with unit.kept(), following(callback, progress, n_components) as told:
        if automatic:
            search, evidence = search_to_noise(oracle, plan, generator, told)
        else:
            search, evidence = run(oracle, plan, rng=generator, callback=told), None
    result = described(search, tolerance=plan.tolerance or math.sqrt(oracle.rounding))
    result = replace(result, explained=explained_by(oracle, result.components), rank_evidence=evidence)
    result = unit.put_back(result)
    if oracle.exact:
        warn_if_unconverged(result, stacklevel=2)
    return result


def _decompose_together(
    unit: Unit,
    n_components: int | str,
    generator: np.random.Generator,
    tolerance: float,
    callback: Callable[[Stage], object] | None,
) -> Decomposition:
    """Fit all components together, as many as are asked for or as the tensor suggests, and judge what they are."""
    oracle = unit.oracle
    if isinstance(n_components, str) and n_components == "auto":
        most = min(oracle.dimension, MOST_AUTOMATIC)
        judged, complete = judge(oracle, generator, most=most, tell=callback), True
        require_signal(unit, judged)
    else:
        k = check_n_components(n_components, oracle.dimension)
        judged, complete = fit_given(oracle, k, generator, tell=callback), False
    return _fitted(oracle, judged, tolerance, complete=complete)


def _fitted(oracle: Oracle, judged: Judged, tolerance: float, *, complete: bool) -> Decomposition:
    """Sort a fit by weight, with its errors and a verdict on its structure."""
    components = judged.fit.components.sorted_by_weight()
    noisy = judged.left != "nothing"
    weight_errors, angle_errors = standard_errors(components, judged.deviation if noisy else 0.0)
    return replace(
        sorted_fit(oracle, judged, tolerance, angle_errors),
        explained=explained_by(oracle, components),
        structure=judge_structure(components.vectors, angle_errors, left=judged.left, complete=complete),
        weight_errors=weight_errors,
        angle_errors=angle_errors,
    )


def _decompose_whitened(
    unit: Unit, n_components: int | str, whiten: Whiten, generator: np.random.Generator, **settings: Any
) -> Decomposition:
    """Decompose in whitened coordinates, go back, and fit all components to the tensor itself."""
    oracle, evidence = unit.oracle, None
    if isinstance(n_components, str) and n_components == "auto":
        judged = judge(oracle, generator, most=min(oracle.dimension, MOST_AUTOMATIC))
        require_signal(unit, judged)
        n_components, evidence = judged.fit.components.n_components, judged.evidence
    k = check_n_components(n_components, oracle.dimension)
    if isinstance(whiten, Whitener):
        whitener = whiten
    elif isinstance(whiten, str):
        check_choice("whiten", whiten, ("auto", "tensor", "slice"))
        whitener = Whitener.from_tensor(oracle, k, span="slice" if whiten == "slice" else "images", rng=generator)
    else:
        whitener = Whitener.from_moment(whiten, k)
    inner = decompose(Whitened(oracle, whitener), k, whiten=None, rng=generator, **settings)
    components = whitener.unwhiten(inner.components)
    start = Components(fitted_weights(oracle, components.vectors), components.vectors, oracle.order)
    fitted = refine(oracle, start, whole=oracle.squared_norm())
    order = fitted.components.largest_first()
    components = fitted.components.sorted_by_weight()
    return replace(
        inner,
        components=components,
        residuals=fitted.residuals[order],
        converged=inner.converged[order],
        n_iterations=inner.n_iterations[order],
        n_agreed=inner.n_agreed[order],
        histories=tuple(inner.histories[i] for i in order),
        explained=explained_by(oracle, components),
        rank_evidence=evidence,
    )

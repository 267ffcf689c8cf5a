"""Decompose a symmetric tensor: by a least-squares CP fit, or by the power method, whitened or not.

If the rank is unknown, the power method finds components until several in a row do not stand clear
of the noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import (
    as_generator,
    check_choice,
    check_count,
    check_n_components,
    check_tolerance,
    put_back,
)
from odeco._util.types import FloatArray, RngLike
from odeco.cp.fit import fitted_weights, refine
from odeco.cp.overcomplete import (
    fit_from_random_starts,
    fit_overcomplete,
    in_packed_coordinates,
    select_exact,
    select_from_random_starts,
    select_overcomplete,
)
from odeco.cp.problem import RankSelection, Stage
from odeco.cp.rank import (
    MAX_AUTOMATIC,
    SURE,
    RankEvidence,
    evidence_from_deflation,
    ground_state,
    no_signal_error,
)
from odeco.cp.selection import fit_rank, select_rank
from odeco.cp.subspace_power import FlattenedProblem, largest_rank
from odeco.cp.symmetric import SymmetricProblem, standard_errors
from odeco.cp.whitening import Whitened, Whitener
from odeco.decompose.result import Decomposition, or_cancelling, structure_of
from odeco.display.progress import following
from odeco.errors import ConvergenceWarning, RankError
from odeco.power.power_method import Callback, PowerSolver, Schedule, run, step, zero_image_error
from odeco.tensors.components import Components
from odeco.tensors.coordinates import FlattenedTensor
from odeco.tensors.dense import as_oracle
from odeco.tensors.entries import InUnit
from odeco.tensors.oracle import Oracle, squared_norm

Method = Literal["auto", "cp", "power"]

Whiten = Literal["tensor", "slice"] | Whitener | FloatArray | None


def decompose(
    tensor: Any,
    n_components: int | Literal["auto"],
    *,
    method: Method = "auto",
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    tol: float = 1e-10,
    whiten: Whiten = None,
    rng: RngLike = None,
    callback: Callable[[PowerSolver | Stage], object] | None = None,
    progress: bool = False,
) -> Decomposition:
    """Decompose a symmetric tensor into weights and unit vectors.

    Components need not be orthogonal, and their number need not be known: all are fitted together
    by least squares, and the result says what kind they are and how far to trust it.
    ``method="power"`` is the robust tensor power method (Algorithm 1 of the paper), for orthogonal
    components.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric array of order 3 or more, or an oracle of such a tensor.
    n_components : int or "auto"
        The number k of components. ``"auto"`` selects it: components that stand clear of the noise
        are kept. The result's `rank_evidence` has the confidence, and the other numbers that are
        not ruled out.
    method : {"auto", "cp", "power"}
        ``"cp"`` fits all components together by least squares, orthogonal or not. ``"power"`` finds
        one orthogonal component after another (Algorithm 1). ``"auto"`` is ``"cp"``, unless
        `n_restarts`, `n_iterations`, `whiten` or ``tol=0`` is given or the oracle is not exact:
        only the power method knows these.
    n_restarts, n_iterations : int, optional
        The L and R of the power method. By default L = 2k ln k, from 10 to 64, and R = 10 + log₂(d
        / tol).
    tol : float
        Relative residual at which a component has converged. The power method then stops early and
        polishes the component to machine precision. 0 is the paper to the letter: exactly
        `n_iterations`, no polishing, and no ``n_components="auto"``.
    whiten : None, "tensor", "slice", d x d array or Whitener
        Whiten the tensor first, so that the power method also finds components that are linearly
        independent but not orthogonal. ``"tensor"`` makes a whitener from the tensor alone;
        ``"slice"`` too, with the span taken from one random slice (Appendix B of the paper, less
        accurate under noise); an array is a second moment of the same components. The components
        found in whitened coordinates are then fitted to the tensor by least squares.
    rng : None, int or numpy.random.Generator
        Draws the starts. The same rng gives the same result on any number of threads.
    callback : callable, optional
        Receives the `PowerSolver` after every reply of the oracle, or the `Stage` of the fit. Both
        have `status` and `components`.
    progress : bool
        Whether to show a progress bar, with rich or tqdm.

    Returns
    -------
    Decomposition
        Sorted by weight, largest first.

    Raises
    ------
    RankError
        If the tensor has fewer components than `n_components`; those found are in ``error.found``.

    Warns
    -----
    ConvergenceWarning
        If a residual is above the tolerance, with what to do.

    Notes
    -----
    More than d components are found at order 4 and above by the subspace power method (Kileel and
    Pereira 2019), up to C(d+h−1, h) − d of them at order 2h and C(d+h−1, h) at order 2h + 1;
    ``"auto"`` finds their number too, if the flattening has at most 2,000 rows and columns. At
    order 3 fewer than (d+1)(d+2)/6 components are identifiable, and are fitted from random starts;
    ``"auto"`` looks for up to 2 d of them without noise, and up to 1.5 d with noise, up to d = 20.
    More are refused.

    Deviations from Algorithm 1 with ``method="power"``: all restarts are iterated as one block;
    deflation is arithmetic on replies; convergence is checked on replies already received (unless
    ``tol=0``); at even orders, and where the value of an iterate of an exact tensor falls, a shift
    is added so that it cannot cycle; at even orders weights keep their sign.

    References
    ----------
    Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016,
    arXiv:1606.06237. Kileel and Pereira, *Subspace power method for symmetric tensor
    decomposition*, 2019, arXiv:1912.04007.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> T = odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense()
    >>> result = odeco.decompose(T, 2, rng=0)
    >>> result.weights, result.converged
    (array([3., 2.]), array([ True,  True]))
    """
    oracle = InUnit(as_oracle(tensor))
    generator = as_generator(rng)
    needs_power = {
        "n_restarts": n_restarts is not None,
        "n_iterations": n_iterations is not None,
        "whiten": whiten is not None,
        "tol=0": check_tolerance(tol) == 0,
        "an oracle that is not exact": not oracle.exact,
        "a symmetric embedding": len(oracle.parts) > 1,
    }
    chosen = choose_method(method, needs_power)
    power: dict[str, Any] = {"n_restarts": n_restarts, "n_iterations": n_iterations, "tol": tol}
    with oracle.put_back_errors(), following(callback, progress, n_components) as report:
        if chosen == "cp":
            result = _fit(oracle, n_components, generator, tol, report)
        elif whiten is None:
            result = _decompose_by_power(oracle, n_components, generator, report, **power)
        else:
            result = _decompose_whitened(
                oracle, n_components, whiten, generator, callback=report, **power
            )
    result = in_own_unit(result, oracle)
    if oracle.exact and whiten is None:  # in whitened coordinates there was a warning before
        warn_if_unconverged(result, stacklevel=2)
    return result


def _fit(
    given: InUnit,
    n_components: int | str,
    generator: np.random.Generator,
    tolerance: float,
    report: Callable[[Stage], object] | None,
) -> Decomposition:
    """Fit all components together, with their errors and their structure."""
    given.take_out_norm(generator)
    oracle = in_packed_coordinates(given) if given.order > 3 else given
    if isinstance(oracle, FlattenedTensor):
        problem: SymmetricProblem = FlattenedProblem(oracle)
    else:
        problem = SymmetricProblem(oracle, squared_norm(oracle, rng=generator))
    automatic = isinstance(n_components, str) and n_components == "auto"
    if automatic:
        selection = _select(problem, generator, report)
        require_signal(given, selection.evidence, selection.fit.components)
    else:
        k = _check_rank(n_components, problem)
        if k <= oracle.dimension:
            selection = fit_rank(problem, k, generator, callback=report)
        elif oracle.order == 3:
            selection = fit_from_random_starts(problem, k, generator, callback=report)
        else:
            selection = fit_overcomplete(oracle, k, generator, callback=report)
    components = selection.fit.components.sorted_by_weight()
    weight_errors, angle_errors = standard_errors(components, selection.deviation)
    structure = structure_of(
        components.vectors, angle_errors, left=selection.left, complete=automatic, overcomplete=True
    )
    return replace(
        sorted_fit(oracle, selection, tolerance, angle_errors),
        explained=explained_by(oracle, components),
        structure=or_cancelling(structure, problem.gram(components.vectors), components.weights),
        weight_errors=weight_errors,
        angle_errors=angle_errors,
    )


def _select(
    problem: SymmetricProblem,
    generator: np.random.Generator,
    report: Callable[[Stage], object] | None,
) -> RankSelection:
    """Fit the number of components that the tensor suggests.

    More components than dimensions are looked for first where a flattening shows them, and last
    where none does.
    """
    dimension = problem.oracle.dimension
    most = min(dimension, MAX_AUTOMATIC)
    found = select_overcomplete(problem, generator, callback=report)
    # a tensor that depends on few directions may well have one component for each of them
    if found is not None and (
        _is_sure(found) or problem.spectra(most, generator).n_clear == dimension
    ):
        return found
    selection = select_rank(problem, generator, max_rank=most, callback=report)
    if selection.left == "nothing":
        return selection
    n_found = selection.fit.components.n_components
    if problem.order != 3:
        if found and (selection.left == "more" or n_found == 0):
            return found
        return selection
    if selection.left == "noise" and _is_sure(selection) and n_found < dimension - 1:
        return selection
    exact = select_exact(problem, generator, callback=report)
    if exact is not None or selection.left == "noise":
        return exact or selection
    return select_from_random_starts(problem, generator, callback=report) or selection


def _is_sure(selection: RankSelection) -> bool:
    """Return whether a number of components is stated without reservation."""
    return selection.evidence is not None and selection.evidence.confidence >= SURE


def _check_rank(n_components: int | str, problem: SymmetricProblem) -> int:
    """Return the number of components as an int, if such a tensor can determine them."""
    dimension = problem.oracle.dimension
    order = problem.order
    if (
        isinstance(n_components, int)
        and not isinstance(n_components, bool)
        and 1 <= n_components <= dimension
    ):
        return n_components
    what = f" for a tensor of dimension {dimension} and order {order} (more cannot be told apart"
    if order == 3:
        most = problem.n_identifiable
        fourth = max(dimension, largest_rank(dimension, 4))
        what += f"; in a moment of order 4, up to {fourth} can)" if fourth > dimension else ")"
    else:
        most = largest_rank(dimension, order)
        what = what + ")"
    return check_count("n_components", n_components, 1, max(dimension, most), what)


def _decompose_by_power(
    oracle: InUnit,
    n_components: int | str,
    generator: np.random.Generator,
    report: Callback | None,
    *,
    n_restarts: int | None,
    n_iterations: int | None,
    tol: float,
) -> Decomposition:
    """Find one component after another (Algorithm 1), a given number of them or until only noise is
    left.
    """
    automatic = isinstance(n_components, str) and n_components == "auto"
    most: Any = min(oracle.dimension, MAX_AUTOMATIC) if automatic else n_components
    plan = Schedule.default(
        oracle.dimension,
        most,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        tolerance=usable_tolerance(tol, oracle),
        weight_from="image" if oracle.exact else "last_image",
    )
    if automatic:
        search, evidence = _search_to_noise(oracle, plan, generator, report)
    else:
        search = run(oracle, plan, rng=generator, callback=report)
        evidence = None
    result = described(search, tolerance=plan.tolerance or math.sqrt(oracle.rounding))
    return replace(
        result, explained=explained_by(oracle, result.components), rank_evidence=evidence
    )


def usable_tolerance(tol: float, oracle: Oracle) -> float:
    """Return a tolerance that the oracle's rounding allows; 0, a fixed count, where it must not be
    asked again.
    """
    tolerance = check_tolerance(tol)
    if tolerance > 0 and oracle.exact:
        return max(tolerance, 8 * oracle.rounding)
    return 0.0


def _search_to_noise(
    oracle: InUnit, plan: Schedule, generator: np.random.Generator, callback: Callback | None
) -> tuple[PowerSolver, RankEvidence]:
    """Find components until several in a row do not stand clear of the noise, and drop those."""
    if not oracle.exact:
        raise ValueError(
            'n_components="auto" needs an oracle that can be asked again. '
            f"{type(oracle.oracle).__name__} is not exact. Pass n_components as an int."
        )
    search = PowerSolver.start(
        plan, order=oracle.order, parts=oracle.parts, rng=generator, rounding=oracle.rounding
    )
    whole = oracle.squared_norm()
    remaining: list[float] = []
    evidence = evidence_from_deflation(np.empty(0), np.empty(0), oracle.dimension, oracle.order)
    while not (search.done or evidence.is_settled(len(search.found), oracle.dimension)):
        try:
            search = step(oracle, search)
        except RankError:  # nothing is left, so there is no noise either
            break
        if callback is not None:
            callback(search)
        if len(search.found) > len(remaining):
            weights = search.components.weights
            if whole is None:
                remaining.append(squared_norm(oracle - search.components, rng=generator))
            else:  # λ is the value at v, so taking out λ v⊗ᵖ lowers the squared norm by λ²
                remaining.append(whole - float(weights @ weights))
            evidence = evidence_from_deflation(
                weights, np.array(remaining), oracle.dimension, oracle.order
            )
    require_signal(oracle, evidence, search.components)
    search = replace(search, found=search.found[: evidence.rank], stage="done")
    return search, _if_orthogonal(evidence, search.components)


def _if_orthogonal(evidence: RankEvidence, found: Components) -> RankEvidence:
    """Set the confidence to 0 if what was found is not orthogonal: its weights then are not those
    of components.

    Noise whose largest value is E₀ √d standard deviations turns a vector of weight λ by one of
    these over √p λ in each of the d − 1 directions around it.
    """
    deviations = evidence.noise_levels[: evidence.rank] / (
        ground_state(found.order) * math.sqrt(found.dimension)
    )
    turned = deviations * math.sqrt((found.dimension - 1) / found.order) / np.abs(found.weights)
    structure = structure_of(found.vectors, turned, left="noise", complete=False)
    if structure.kind == "orthogonal":
        return evidence
    return replace(evidence, confidence=0.0)


def _decompose_whitened(
    oracle: InUnit,
    n_components: int | str,
    whiten: Whiten,
    generator: np.random.Generator,
    **settings: Any,
) -> Decomposition:
    """Decompose in whitened coordinates, go back, and fit all components to the tensor itself."""
    oracle.take_out_norm(generator)
    evidence = None
    if isinstance(n_components, str) and n_components == "auto":
        problem = SymmetricProblem(oracle, squared_norm(oracle, rng=generator))
        selection = select_rank(problem, generator, max_rank=min(oracle.dimension, MAX_AUTOMATIC))
        require_signal(oracle, selection.evidence, selection.fit.components)
        n_components = selection.fit.components.n_components
        evidence = selection.evidence
    k = check_n_components(n_components, oracle.dimension)
    if isinstance(whiten, Whitener):
        whitener = whiten
    elif isinstance(whiten, str):
        check_choice("whiten", whiten, ("tensor", "slice"))
        whitener = Whitener.from_tensor(
            oracle, k, span="slice" if whiten == "slice" else "images", rng=generator
        )
    else:
        whitener = Whitener.from_moment(whiten, k)
    inner = decompose(Whitened(oracle, whitener), k, method="power", rng=generator, **settings)
    components = whitener.unwhiten(inner.components)
    problem = SymmetricProblem(oracle, oracle.squared_norm() or 0.0)
    start = Components(
        fitted_weights(problem, components.vectors), components.vectors, oracle.order
    )
    fitted = refine(problem, start)
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


def in_own_unit(result: Decomposition, oracle: InUnit) -> Decomposition:
    """Put a result back into the unit that the tensor was given in."""
    exponent = oracle.exponent
    evidence = result.rank_evidence
    errors = result.weight_errors
    if exponent == 0:
        return result
    if evidence is not None:
        weights, levels = (
            put_back(each, exponent, "weights")
            for each in (evidence.weights, evidence.noise_levels)
        )
        evidence = replace(evidence, weights=weights, noise_levels=levels)
    return replace(
        result,
        components=oracle.put_back(result.components),
        residuals=put_back(result.residuals, exponent, "residuals"),
        rank_evidence=evidence,
        weight_errors=None if errors is None else put_back(errors, exponent, "errors of weights"),
    )


def choose_method(method: str, needs_power: Mapping[str, bool]) -> str:
    """Return "cp" or "power"; `needs_power` names the settings that only the power method knows,
    and whether given.
    """
    check_choice("method", method, ("auto", "cp", "power"))
    given = [name for name, is_given in needs_power.items() if is_given]
    if method == "cp" and given:
        raise ValueError(
            f'`method` must be "auto" or "power" with {given[0]}. Got "cp". Leave out one of the '
            "two."
        )
    if method != "power" and not given:
        return "cp"
    return "power"


#: A fit has converged if what it still misses is this share of its standard errors.
_ENOUGH = 0.01


def described(search: PowerSolver, *, tolerance: float) -> Decomposition:
    """Sort what a finished search has found, with the residual of each component."""
    found = search.components
    order = found.largest_first()
    residuals = np.array(
        [np.nan if pair.residual is None else pair.residual for pair in search.found]
    )[order]
    return Decomposition(
        components=found.sorted_by_weight(),
        residuals=residuals,
        converged=residuals <= tolerance * np.abs(found.weights[order]),
        n_iterations=np.array([pair.n_iterations for pair in search.found])[order],
        n_agreed=np.array([pair.n_agreed for pair in search.found])[order],
        histories=tuple(search.found[i].history for i in order),
        n_restarts=search.schedule.n_restarts,
    )


def sorted_fit(
    oracle: Oracle, selection: RankSelection, tolerance: float, angle_errors: FloatArray
) -> Decomposition:
    """Sort a fit by weight, and check whether it converged."""
    found = selection.fit
    order = found.components.largest_first()
    components = found.components.sorted_by_weight()
    residuals = found.residuals[order]
    # A fit need not be exact to more digits than the noise leaves of it.
    enough = np.maximum(max(tolerance, 8 * oracle.rounding), _ENOUGH * angle_errors) * np.abs(
        components.weights
    )
    evidence = selection.evidence
    if evidence is not None:
        first = np.concatenate([order, np.arange(order.size, evidence.weights.size)])
        evidence = replace(
            evidence, weights=evidence.weights[first], chances=evidence.chances[first]
        )
    return Decomposition(
        components=components,
        residuals=residuals,
        converged=residuals <= enough,
        n_iterations=np.full(order.size, max(1, len(found.history))),
        n_agreed=np.ones(order.size, dtype=np.intp),
        histories=(found.history,) * order.size,
        rank_evidence=evidence,
    )


def explained_by(oracle: Oracle, components: Components) -> float | None:
    """Return 1 − ‖T − C‖² / ‖T‖², with ⟨T, C⟩ = Σ λᵢ T(vᵢ, …, vᵢ)."""
    whole = oracle.squared_norm()
    if whole is None or not oracle.exact:
        return None
    inner = float(components.weights @ oracle.value(components.vectors))
    return (2 * inner - components.squared_norm()) / whole


def require_signal(oracle: InUnit, evidence: RankEvidence | None, found: Components) -> None:
    """Raise if no component stands clear of the noise."""
    if evidence is None or evidence.rank:
        return
    if evidence.weights.size == 0:
        raise zero_image_error(1, found)
    weights = put_back(evidence.weights, oracle.exponent, "weights")
    raise no_signal_error(
        weights,
        put_back(evidence.noise_levels, oracle.exponent, "noise levels"),
        found,
        " Many components together, such as more than dimensions, look like noise too.",
    )


def warn_if_unconverged(result: Decomposition, *, stacklevel: int) -> None:
    """Warn about the worst component that did not converge, with the remedy."""
    if result.converged.all():
        return
    worst = int(np.argmax(np.where(result.converged, 0, result.residuals / np.abs(result.weights))))
    residual = float(result.residuals[worst])
    weight = float(result.weights[worst])
    # n_iterations is for the power method alone, so it is no remedy for a CP fit.
    looped = result.n_restarts is not None
    remedy = "Raise n_iterations, raise tol" if looped else "Raise tol"
    text = (
        f"Component {worst} did not converge: its residual is {residual:.1e}, or "
        f"{residual / abs(weight):.1e} of its weight {weight:.3g}, after "
        f"{result.n_iterations[worst]} {'iterations' if looped else 'steps'}. {remedy} if that is "
        "accurate enough, or lower n_components if the weight is at the noise level."
    )
    warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)

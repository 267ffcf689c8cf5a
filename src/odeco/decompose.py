"""The recipes: ten lines of composition each, from a tensor to its components."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from odeco._arguments import as_generator, check_choice, check_count, check_n_components, check_tolerance
from odeco._scale import put_back, times_power_of_two
from odeco._types import FloatArray, RngLike
from odeco.components import Components
from odeco.errors import ConvergenceWarning, RankError
from odeco.fit import (
    Judged,
    Stage,
    TermJudge,
    explained_by_terms,
    factors_of,
    fit_given,
    judge,
    refine,
    standard_errors,
    term_angle_errors,
)
from odeco.norms import squared_norm
from odeco.oracle import Oracle
from odeco.rank import RankEvidence, enough_seen, ground_state, judge_rank
from odeco.result import AsymmetricDecomposition, Decomposition
from odeco.search import Callback, Plan, Search, run, step, zero_image_error
from odeco.structure import judge_structure, judge_term_structure
from odeco.tensors import AsymmetricTensor, InUnit, as_oracle
from odeco.whitening import Whitened, Whitener

#: The most components that are looked for when their number is left to the data.
MOST_AUTOMATIC = 100
#: A fit has converged if what it still misses is this share of its standard errors.
_ENOUGH = 0.01
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
            unit = _Unit.of(oracle, generator)
            with unit.kept():
                result = _decompose_together(unit, n_components, generator, check_tolerance(tol), callback)
            result = unit.put_back(result)
            _warn_if_unconverged(result, stacklevel=2)
            return result
        whiten = None
    if whiten is not None:
        settings = {"n_restarts": n_restarts, "n_iterations": n_iterations, "tol": tol, "callback": callback}
        unit = _Unit.of(oracle, generator)
        with unit.kept():
            result = _decompose_whitened(unit, n_components, whiten, generator, **settings)
        return unit.put_back(result)
    automatic = isinstance(n_components, str) and n_components == "auto"
    most: Any = min(oracle.dimension, MOST_AUTOMATIC) if automatic else n_components
    plan = Plan.default(
        oracle.dimension,
        most,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        tolerance=_usable_tolerance(tol, oracle),
        weigh="image" if oracle.exact else "reuse",
    )
    unit = _Unit(oracle)
    with unit.kept():
        if automatic:
            search, evidence = _search_to_noise(oracle, plan, generator, callback)
        else:
            search, evidence = run(oracle, plan, rng=generator, callback=callback), None
    result = _described(search, tolerance=plan.tolerance or math.sqrt(oracle.rounding))
    result = replace(result, explained=_explained(oracle, result.components), rank_evidence=evidence)
    result = unit.put_back(result)
    if oracle.exact:
        _warn_if_unconverged(result, stacklevel=2)
    return result


def decompose_asymmetric(
    tensor: Any,
    n_components: int | Literal["auto"],
    *,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    tol: float = 1e-10,
    whiten: Literal["auto"] | None = "auto",
    rng: RngLike = None,
    callback: Callable[[Search | Stage], object] | None = None,
) -> AsymmetricDecomposition:
    """Decompose an asymmetric d₁ x d₂ x … array into terms λ a ⊗ b ⊗ ….

    Terms need not be orthogonal, and their number need not be known: all are fitted together by least squares, and the
    result says what kind they are and how far to trust it. Their vectors should be linearly independent along each
    axis, so that there are at most as many terms as the smallest axis has entries.

    With ``whiten=None``, which `n_restarts`, `n_iterations` and ``tol=0`` imply, this is the paper's loop, for factors
    that are orthogonal: the array is treated as a symmetric tensor of dimension d₁ + d₂ + …, which is never formed; see
    `AsymmetricTensor`. It needs the number of terms. The other parameters are those of `decompose`.

    Notes
    -----
    What is left is compared with Gaussian noise of independent entries, whose largest value at products of unit vectors
    is bounded as `odeco.rank.ProductNoise` says. In a `Stage` or a `RankError`, a term is a component with the weight λ
    and the vector (a, b, …)/√p.

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
    """
    entries = tensor if isinstance(tensor, AsymmetricTensor) else AsymmetricTensor(tensor)
    oracle, generator = InUnit(entries), as_generator(rng)
    if whiten not in ("auto", None):
        raise ValueError(f"`whiten` must be 'auto' or None for an asymmetric tensor. Got {whiten!r}.")
    looped = whiten is None or n_restarts is not None or n_iterations is not None or check_tolerance(tol) == 0
    automatic = isinstance(n_components, str) and n_components == "auto"
    if looped and automatic:
        raise ValueError(
            'n_components="auto" needs a fit of all terms together for an asymmetric tensor. '
            "Got whiten=None, n_restarts, n_iterations or tol=0, which ask for the loop. "
            "Leave them out, or pass n_components as an int."
        )
    most = min(*oracle.parts, MOST_AUTOMATIC) if automatic else min(oracle.parts)
    k = (
        most
        if automatic
        else check_count("n_components", n_components, 1, most, f" for a tensor of shape {entries.parts}")
    )
    if not looped:
        unit = _Unit.of(oracle, generator)
        with unit.kept():
            found = _terms_together(unit, entries, k, generator, check_tolerance(tol), callback, automatic=automatic)
        found = unit.put_back(found)
        _warn_if_unconverged(found, stacklevel=2)
        factors = tuple(factors_of(found.components, entries.parts))
        return AsymmetricDecomposition(
            found.weights,
            factors,
            found.residuals,
            found.converged,
            found.explained,
            found.rank_evidence,
            found.structure,
        )
    plan = Plan.default(
        oracle.dimension,
        k,
        n_restarts=n_restarts,
        n_iterations=n_iterations,
        tolerance=_usable_tolerance(tol, oracle),
    )
    unit = _Unit(oracle)
    with unit.kept():
        search = run(oracle, plan, rng=generator, callback=callback)
    found = _described(search, tolerance=plan.tolerance or math.sqrt(oracle.rounding))
    terms = Components(entries.term_weights(found.weights), found.vectors, found.order)
    explained = explained_by_terms(oracle, terms)
    found = unit.put_back(found)
    _warn_if_unconverged(found, stacklevel=2)
    weights = entries.term_weights(found.weights)
    first, *others = entries.split(found.vectors)
    return AsymmetricDecomposition(
        np.abs(weights), (first * np.sign(weights), *others), found.residuals, found.converged, explained
    )


def _terms_together(
    unit: _Unit,
    entries: AsymmetricTensor,
    n_components: int,
    generator: np.random.Generator,
    tolerance: float,
    callback: Callable[[Stage], object] | None,
    *,
    automatic: bool,
) -> Decomposition:
    """Fit all terms of an asymmetric tensor together, `n_components` or at most as many, and judge what they are."""
    tensor = AsymmetricTensor(times_power_of_two(entries.entries.astype(np.float64), -unit.exponent))
    tensor.rounding = entries.rounding
    if automatic:
        judged = judge(tensor, generator, most=n_components, tell=callback, judge_class=TermJudge)
        _require_signal(unit, judged)
    else:
        judged = fit_given(tensor, n_components, generator, tell=callback, judge_class=TermJudge)
    terms = judged.fit.components.sorted_by_weight()
    deviation = judged.deviation if judged.left != "nothing" else 0.0
    errors = term_angle_errors(terms, tensor.parts, deviation)
    factors = factors_of(terms, tensor.parts)
    return replace(
        _sorted_fit(tensor, judged, tolerance, np.sqrt(np.mean(np.square(errors), axis=0))),
        explained=explained_by_terms(tensor, terms),
        structure=judge_term_structure(factors, errors, left=judged.left, complete=automatic),
    )


@dataclass(frozen=True)
class _Unit:
    """A tensor over a power of two, and the way back.

    The loop normalises whatever it is told, so that a tensor and its double lead to the same bits. Least squares takes
    p-th roots of weights. It gets a tensor whose norm is about 1.
    """

    given: InUnit
    shift: int = 0

    @classmethod
    def of(cls, given: InUnit, generator: np.random.Generator) -> _Unit:
        """Return the unit in which the norm is between 1/2 and 1, or about that where it can only be estimated."""
        size = squared_norm(given, rng=generator) if given.exact else 0.0
        return cls(given, math.frexp(math.sqrt(size))[1])

    @property
    def oracle(self) -> Oracle:
        """The tensor in the unit."""
        return self.given * 2.0**-self.shift

    @property
    def exponent(self) -> int:
        """The exponent of the unit."""
        return (self.given.exponent or 0) + self.shift

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put what an error has found back into the unit that the tensor was given in."""
        try:
            yield
        except RankError as error:
            weights = put_back(error.found.weights, self.exponent, "weights")
            error.found = Components(weights, error.found.vectors, error.found.order)
            raise

    def put_back(self, result: Decomposition) -> Decomposition:
        """Put a result back into the unit that the tensor was given in."""
        exponent, evidence, errors = self.exponent, result.rank_evidence, result.weight_errors
        if exponent == 0:
            return result
        if evidence is not None:
            weights, levels = (
                put_back(each, exponent, "weights") for each in (evidence.weights, evidence.noise_levels)
            )
            evidence = replace(evidence, weights=weights, noise_levels=levels)
        weights = put_back(result.weights, exponent, "weights")
        return replace(
            result,
            components=Components(weights, result.vectors, result.order),
            residuals=put_back(result.residuals, exponent, "residuals"),
            rank_evidence=evidence,
            weight_errors=None if errors is None else put_back(errors, exponent, "errors of weights"),
        )


def _usable_tolerance(tol: float, oracle: Oracle) -> float:
    """Return a tolerance that the oracle's rounding allows; 0, a fixed count, where it must not be asked again."""
    tolerance = check_tolerance(tol)
    return max(tolerance, 8 * oracle.rounding) if tolerance > 0 and oracle.exact else 0.0


def _explained(oracle: Oracle, components: Components) -> float | None:
    """Return 1 − ‖T − C‖² / ‖T‖², with ⟨T, C⟩ = Σ λᵢ T(vᵢ, …, vᵢ)."""
    whole = oracle.squared_norm()
    if whole is None or not oracle.exact:
        return None
    inner = float(components.weights @ oracle.value(components.vectors))
    return (2 * inner - components.squared_norm()) / whole


def _search_to_noise(
    oracle: InUnit, plan: Plan, generator: np.random.Generator, callback: Callback | None
) -> tuple[Search, RankEvidence]:
    """Find components until several in a row do not stand clear of the noise, and drop those."""
    if not oracle.exact:
        raise ValueError(
            'n_components="auto" needs an oracle that can be asked again. '
            f"{type(oracle.oracle).__name__} is not exact. Pass n_components as an int."
        )
    search = Search.start(plan, order=oracle.order, parts=oracle.parts, rng=generator, rounding=oracle.rounding)
    whole = oracle.squared_norm()
    remaining: list[float] = []
    evidence = judge_rank(np.empty(0), np.empty(0), oracle.dimension, oracle.order)
    while not (search.done or enough_seen(len(search.found), evidence, oracle.dimension)):
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
            evidence = judge_rank(weights, np.array(remaining), oracle.dimension, oracle.order)
    if evidence.rank == 0:
        exponent = oracle.exponent or 0
        weights = put_back(evidence.weights, exponent, "weights")
        raise _no_signal_error(weights, put_back(evidence.noise_levels, exponent, "noise levels"), search.components)
    search = replace(search, found=search.found[: evidence.rank], stage="done")
    return search, _if_orthogonal(evidence, search.components)


def _if_orthogonal(evidence: RankEvidence, found: Components) -> RankEvidence:
    """Take back the confidence if what the loop found is not orthogonal: its weights then are not those of components.

    Noise whose largest value is E₀ √d standard deviations turns a vector of weight λ by one of these over √p λ in each
    of the d − 1 directions around it.
    """
    deviations = evidence.noise_levels[: evidence.rank] / (ground_state(found.order) * math.sqrt(found.dimension))
    turned = deviations * math.sqrt((found.dimension - 1) / found.order) / np.abs(found.weights)
    structure = judge_structure(found.vectors, turned, left="noise", complete=False)
    return evidence if structure.kind == "orthogonal" else replace(evidence, confidence=0.0)


def _decompose_together(
    unit: _Unit,
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
        _require_signal(unit, judged)
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
        _sorted_fit(oracle, judged, tolerance, angle_errors),
        explained=_explained(oracle, components),
        structure=judge_structure(components.vectors, angle_errors, left=judged.left, complete=complete),
        weight_errors=weight_errors,
        angle_errors=angle_errors,
    )


def _sorted_fit(oracle: Oracle, judged: Judged, tolerance: float, angle_errors: FloatArray) -> Decomposition:
    """Sort a fit by weight, and judge whether it converged."""
    found = judged.fit
    order = found.components.largest_first()
    components = found.components.sorted_by_weight()
    residuals = found.residuals[order]
    # A fit need not be exact to more digits than the noise leaves of it.
    enough = np.maximum(max(tolerance, 8 * oracle.rounding), _ENOUGH * angle_errors) * np.abs(components.weights)
    evidence = judged.evidence
    if evidence is not None:
        first = np.concatenate([order, np.arange(order.size, evidence.weights.size)])
        evidence = replace(evidence, weights=evidence.weights[first], chances=evidence.chances[first])
    return Decomposition(
        components=components,
        residuals=residuals,
        converged=residuals <= enough,
        n_iterations=np.full(order.size, max(1, len(found.history))),
        n_agreed=np.ones(order.size, dtype=np.intp),
        histories=(found.history,) * order.size,
        rank_evidence=evidence,
    )


def _require_signal(unit: _Unit, judged: Judged) -> None:
    """Raise if no component stands clear of the noise."""
    evidence = judged.evidence
    if evidence is None or evidence.rank:
        return
    if evidence.weights.size == 0:
        raise zero_image_error(1, judged.fit.components)
    weights = put_back(evidence.weights, unit.exponent, "weights")
    levels = put_back(evidence.noise_levels, unit.exponent, "noise levels")
    raise _no_signal_error(weights, levels, judged.fit.components)


def _decompose_whitened(
    unit: _Unit, n_components: int | str, whiten: Whiten, generator: np.random.Generator, **settings: Any
) -> Decomposition:
    """Decompose in whitened coordinates, go back, and fit all components to the tensor itself."""
    oracle, evidence = unit.oracle, None
    if isinstance(n_components, str) and n_components == "auto":
        judged = judge(oracle, generator, most=min(oracle.dimension, MOST_AUTOMATIC))
        _require_signal(unit, judged)
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
    gram: FloatArray = components.vectors.T @ components.vectors
    weights = np.linalg.solve(gram**oracle.order, oracle.value(components.vectors))
    fitted = refine(oracle, Components(weights, components.vectors, oracle.order), whole=oracle.squared_norm())
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
        explained=_explained(oracle, components),
        rank_evidence=evidence,
    )


def _no_signal_error(weights: FloatArray, noise_levels: FloatArray, found: Components) -> RankError:
    """Say that no component stands clear of the noise."""
    best = int(np.argmax(np.abs(weights) / noise_levels))
    return RankError(
        "At least one component must stand clear of the noise. "
        f"The clearest has weight {weights[best]:.3g}, where noise alone would show {noise_levels[best]:.3g}. "
        "Pass n_components as an int to see it all the same.",
        found,
    )


def _described(search: Search, *, tolerance: float) -> Decomposition:
    """Sort what a finished search has found, and judge each component."""
    found = search.components
    order = found.largest_first()
    residuals = np.array([np.nan if pair.residual is None else pair.residual for pair in search.found])[order]
    return Decomposition(
        components=found.sorted_by_weight(),
        residuals=residuals,
        converged=residuals <= tolerance * np.abs(found.weights[order]),
        n_iterations=np.array([pair.n_iterations for pair in search.found])[order],
        n_agreed=np.array([pair.n_agreed for pair in search.found])[order],
        histories=tuple(search.found[i].history for i in order),
        n_restarts=search.plan.n_restarts,
    )


def _warn_if_unconverged(result: Decomposition, *, stacklevel: int) -> None:
    """Warn about the worst component that did not converge, with the remedy."""
    relative = result.residuals / np.abs(result.weights)
    if not result.converged.all():
        worst = int(np.argmax(np.where(result.converged, 0, relative)))
        text = _unconverged_message(
            worst, float(result.residuals[worst]), float(result.weights[worst]), int(result.n_iterations[worst])
        )
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)


def _unconverged_message(component: int, residual: float, weight: float, n_iterations: int) -> str:
    """Say which component did not converge, by how much, and what helps."""
    return (
        f"Component {component + 1} did not converge: its residual is {residual:.1e}, or "
        f"{residual / abs(weight):.1e} of its weight {weight:.3g}, after {n_iterations} iterations. "
        f"Raise n_iterations, raise tol if that is accurate "
        "enough, or lower n_components if the weight is at the noise level."
    )

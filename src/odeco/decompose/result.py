"""Results of decompositions: components, what kind they are, and how far to trust each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import (
    Sizes,
    State,
    array,
    array_field,
    arrays_field,
    given_field,
    part_field,
    require,
    text_array,
    unit_vectors,
)
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.fit import CANCELLED, cancelled_share
from odeco.cp.problem import Left
from odeco.cp.rank import SURE, RankEvidence
from odeco.display.tables import Shown
from odeco.privacy.report import PrivacyReport
from odeco.tensors.components import Components, as_tensorly, read_tensorly, sum_of_products

#: What a decomposition leaves, as the end of a sentence.
_LEFT = {
    "nothing": "nothing is left",
    "noise": "what is left looks like noise",
    "unclear": "what is left may be noise or many more components",
    "more": "what is left holds more than noise",
}


#: Why components that were selected do not explain a tensor, and what to do.
_REASONS: dict[Left, str] = {
    "unclear": "there may be more components than dimensions: pass their number, or decompose a "
    "moment of order 4",
    "more": "what they leave is larger than noise of its norm would be on the sphere, and no "
    "further component could be fitted: there may be more components than dimensions, or none",
}

Kind = Literal[
    "orthogonal", "independent", "dependent", "overcomplete", "cancelling", "unexplained"
]

#: A cosine counts as zero if it is at most this number of standard errors, or the root of the
#: rounding error.
_MOST_ERRORS = 5.0
_ROUNDING = 1e-7

_WORDS: dict[Kind, str] = {
    "orthogonal": "orthogonal",
    "independent": "independent but not orthogonal",
    "dependent": "not certain to be linearly independent",
    "overcomplete": "more than dimensions",
    "cancelling": "some of which cancel each other",
    "unexplained": "which do not explain all of it",
}


def _check_history(value: Any, where: str, sizes: Sizes) -> None:
    """Require a list of relative residuals, which may be infinite."""
    array(None, nan=True, low=0)(np.where(np.isinf(value), 0.0, value), where, sizes)


@dataclass(frozen=True)
class Structure(State):
    """How components stand to each other, and what they leave.

    Attributes
    ----------
    kind : {"orthogonal", "independent", "dependent", "overcomplete", "cancelling", "unexplained"}
        Whether components are orthogonal within their errors; linearly independent only; linearly
        dependent within their errors, so that at order 3 they may not be unique; more than
        dimensions, along some axis of an asymmetric tensor; nearly cancel each other, as in a fit
        whose weights grow without bound, so that single components mean little; or leave something
        behind that is neither noise nor explained by as many components as were looked for.
    largest_cosine : float
        The largest cosine of two components, without its sign.
    left : {"nothing", "noise", "unclear", "more"}
        What is left of the tensor: rounding error, what looks like noise, or something that noise
        would not show.
    reason : str
        The reason, in words.
    """

    kind: Kind = array_field(rule=text_array(*_WORDS))
    largest_cosine: float = array_field(low=0, high=2)
    left: Left = array_field(rule=text_array(*_LEFT))
    reason: str = array_field(kind="U")


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown, State):
    """Components, largest weight first.

    Attributes
    ----------
    components : Components
        Weights and unit vectors; itself a tensor that can be asked, subtracted and saved.
    names : tuple of str or None
        What the coordinates stand for: the columns of a table, the words of a vocabulary.
    """

    components: Components = part_field(Components)
    _: KW_ONLY
    names: tuple[str, ...] | None = array_field("d", kind="U", default=None, as_tuple=True)

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return _counted(len(self.weights))

    def with_names(self, names: Iterable[str] | None) -> Self:
        """Return the same result with names for its coordinates, such as a vocabulary; None takes
        them away.
        """
        if names is None:
            return replace(self, names=None)
        given = tuple(map(str, names))
        if len(given) != self.components.dimension:
            raise ValueError(
                f"`names` must have one name for each of the {self.components.dimension:,} "
                f"coordinates. Got {len(given):,}. Pass them in the order of the coordinates."
            )
        return replace(self, names=given)

    @property
    def weights(self) -> FloatArray:  # type: ignore[override]
        """The k weights, largest first (at even orders, largest in absolute value)."""
        return self.components.weights

    @property
    def vectors(self) -> FloatArray:
        """The k unit vectors, one a column."""
        return self.components.vectors

    @property
    def order(self) -> int:
        """The order of the tensor."""
        return self.components.order


@dataclass(frozen=True, eq=False, repr=False)
class Decomposition(Result):
    """Components of a tensor, largest weight first, with a verdict for each.

    Attributes
    ----------
    residuals : array
        ‖T(I,v,…,v) − λv‖ for each component, in the tensor as it was when the component was found.
    converged : array of bool
        Whether the residual is within the tolerance.
    n_iterations : array of int
        Images asked for until the component was found.
    n_agreed : array of int
        How many restarts ended at the component; 1 if all were fitted together.
    histories : tuple of tuples of float
        Relative residual of the leading candidate after each image.
    explained : float or None
        Share of the squared norm of the tensor that the components explain, where the norm is
        known.
    rank_evidence : RankEvidence or None
        Why this number of components, if it was left to the data.
    n_restarts : int or None
        How many restarts there were for each component; None if all were fitted together.
    structure : Structure or None
        Whether the components are orthogonal, and what they leave; None after the power method.
    weight_errors, angle_errors : arrays or None
        Standard errors of weights, and of vectors in radians, if what is left is noise with the
        same variance in all directions; π/2 where a vector is not determined.
    """

    residuals: FloatArray = array_field("k", low=0, nan=True)
    converged: NDArray[np.bool_] = array_field("k", kind="b")
    n_iterations: IndexArray = array_field("k", kind="i", low=0)
    n_agreed: IndexArray = array_field("k", kind="i", low=0)
    histories: tuple[tuple[float, ...], ...] = arrays_field(rule=_check_history, as_tuple=True)
    explained: float | None = array_field(default=None)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)
    n_restarts: int | None = array_field(kind="i", low=1, default=None)
    structure: Structure | None = part_field(Structure, default=None)
    weight_errors: FloatArray | None = array_field("k", low=0, default=None)
    angle_errors: FloatArray | None = array_field("k", low=0, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(len(self.histories) == len(self.weights), "every component must have one history")

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return _verdict(self)


#: A component of a stream is determined if its weight is this many standard errors, and its vector
#: errs by less.
_CLEAR_ERRORS = 3.0
_CLEAR_ANGLE = math.pi / 4

#: A verdict lists at most this number of components.
_MAX_LISTED = 5

#: A weight below this share of the largest may be rounding error.
_ROUNDING_OF_WEIGHTS = 1e-10


def _counted(number: int) -> str:
    return f"{number} component{'' if number == 1 else 's'}"


def _doubt(evidence: RankEvidence | None) -> str:
    """Say which other numbers of components are not ruled out; nothing if that is sure."""
    if evidence is None or evidence.confidence >= SURE:
        return ""
    others = ", ".join(str(rank) for rank in sorted(evidence.candidates) if rank != evidence.rank)
    return f" ({f'or {others}: ' if others else ''}the evidence does not decide)"


def _verdict(result: Decomposition | AsymmetricDecomposition) -> str:
    """Say in one sentence how many components there are, of which kind, and what they leave."""
    k = len(result.weights)
    evidence = result.rank_evidence
    structure = result.structure
    count = _counted(k) + _doubt(evidence)
    kind = f", {_WORDS[structure.kind]}" if structure is not None and k > 1 else ""
    text = f"{count}{kind}"
    if result.explained is not None:
        # 99.996 % must not be shown as all of it
        share = math.floor(1000 * result.explained) / 10 if result.explained < 1 - 1e-12 else 100
        text += f"; {'it explains' if k == 1 else 'they explain'} {share:.4g} % of T"
    if structure is None:
        return text
    return f"{text}, {_LEFT[structure.left]}"


@dataclass(frozen=True, eq=False, repr=False)
class StreamDecomposition(Result):
    """Components of the moment of a stream, largest weight first.

    Attributes
    ----------
    weight_errors, angle_errors : arrays or None
        Standard errors of weights, and of vectors in radians, from the spread between segments of
        rows; None while there are too few to tell. Errors of vectors include `misfit_errors`.
    misfit_errors : array or None
        The angle by which each vector may be off because the moment is not the sum of all of them;
        0 if it may be. None where that is not known: with forgetting, by the power method, and
        without standard errors.
    n_rows : int
        Rows read, each counted once.
    n_passes : int
        How often all of them were read.
    rank_evidence : RankEvidence or None
        Why this number of components, if it was left to the rows.
    """

    weight_errors: FloatArray | None = array_field("k", low=0, default=None)
    angle_errors: FloatArray | None = array_field("k", low=0, default=None)
    n_rows: int = array_field(kind="i", low=0, default=0)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)
    _: KW_ONLY
    n_passes: int = array_field(kind="i", low=1, default=1)
    misfit_errors: FloatArray | None = array_field("k", low=0, default=None)

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        passes = f" in {self.n_passes} passes" if self.n_passes > 1 else ""
        count = _counted(len(self.weights)) + _doubt(self.rank_evidence)
        return f"{count} of the moment, from {self.n_rows:,} rows{passes}{self._doubt}"

    @property
    def _doubt(self) -> str:
        """Which components the rows do not determine, and what to do, as the end of a sentence."""
        unclear = np.flatnonzero(~self.clear)
        if not unclear.size:
            return ""
        if unclear.size == len(self.weights):
            which = "None of them is"
        elif unclear.size == 1:
            which = f"Component {unclear[0]} is not"
        elif unclear.size <= _MAX_LISTED:
            which = f"Components {', '.join(map(str, unclear))} are not"
        else:
            which = f"{unclear.size} of them are not"
        if self.misfits:
            return f". {which} determined: the moment is not their sum"
        return f". {which} determined: pass more rows, or ask for fewer components"

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which components the rows determine: a weight of 3 standard errors, and an angle that
        errs by less than π/4.

        None is before there are standard errors, and none whose weight is within rounding of the
        largest.
        """
        if self.weight_errors is None or self.angle_errors is None:
            return np.zeros(len(self.weights), dtype=np.bool_)
        rounding = _ROUNDING_OF_WEIGHTS * np.max(np.abs(self.weights), initial=0.0)
        above = np.abs(self.weights) > np.maximum(_CLEAR_ERRORS * self.weight_errors, rounding)
        determined: NDArray[np.bool_] = above & (self.angle_errors < _CLEAR_ANGLE)
        return determined

    @property
    def misfits(self) -> bool:
        """Whether some component is not determined because the moment is not the sum of all of
        them.
        """
        return self.misfit_errors is not None and bool(
            np.any(~self.clear & (self.misfit_errors > 0))
        )


@dataclass(frozen=True, eq=False, repr=False)
class PrivateDecomposition(Result):
    """Components found under differential privacy, largest weight first. All of it may be
    published.

    Attributes
    ----------
    weight_errors : array
        Standard deviation of the noise in each weight.
    angle_errors : array
        Angle in radians by which the noise turned each vector, to first order; π/2 where that means
        nothing.
    noise_floors : array
        For each component the weight that noise alone would show with a chance of 1 in 1,000, at
        most.
    privacy : PrivacyReport
        What is guaranteed to whom, and every release that was made.
    norm_bound : float or None
        Of rows, the norm that longer ones were scaled down to; public. It makes weights smaller
        than those of the rows as they were, which no error here includes.
    """

    weight_errors: FloatArray = array_field("k", low=0)
    angle_errors: FloatArray = array_field("k", low=0)
    noise_floors: FloatArray = array_field("k", low=0)
    privacy: PrivacyReport = given_field()
    _: KW_ONLY
    norm_bound: float | None = array_field(low=0, default=None)

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        guarantee = (
            f"ε = {self.privacy.epsilon:g}, δ = {self.privacy.delta:g}, for one {self.privacy.unit}"
        )
        if not self.clear.any():
            return f"no component stands clear of the noise ({guarantee})"
        return (
            f"{int(np.sum(self.clear))} of {_counted(len(self.weights))} stand clear of the noise "
            f"({guarantee})"
        )

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which components stand clear of the noise floor: a choice of the rank that costs nothing
        more.
        """
        return np.abs(self.weights) > self.noise_floors

    @property
    def estimate(self) -> Components:
        """The components with weights that make them no worse than nothing; those that are not
        clear weigh 0.

        Notes
        -----
        Let T be the tensor of the data, and τ = T(v, …, v) its value at a vector v. Components w
        v⊗ᵖ at right angles to each other are nearer to T than 0 is, ‖T − Σ w v⊗ᵖ‖² ≤ ‖T‖², if 0 ≤ w
        ≤ 2τ for each, as the difference of both sides is Σ w (w − 2τ). A released weight λ exceeds
        τ by at most the noise floor f, but for a chance of 1 in 1,000. So 2τ ≥ 2 (λ − f), and λ
        itself where it is not larger is allowed: w = min(λ, 2 (λ − f)), or 0 if that is negative.
        Weights above twice the floor stay as they are. This is post-processing.
        """
        sizes = np.abs(self.weights)
        shrunk = np.clip(2 * (sizes - self.noise_floors), 0.0, sizes)
        return Components(np.sign(self.weights) * shrunk, self.vectors, self.order)


@dataclass(frozen=True, eq=False, repr=False)
class PrivateStreamDecomposition(PrivateDecomposition):
    """Components of the moment of a stream, found under differential privacy. All of it may be
    published.

    Once there are batches enough to tell, `weight_errors` and `angle_errors` come from the spread
    between batches, and so include the chance of the sample; before that they are those of the
    privacy noise alone.

    Attributes
    ----------
    n_rows : int
        Rows taken in; public.
    """

    n_rows: int = array_field(kind="i", low=0)


@dataclass(frozen=True, eq=False, repr=False)
class AsymmetricDecomposition(Shown, State):
    """Terms λ a ⊗ b ⊗ … of an asymmetric tensor, largest weight first.

    Attributes
    ----------
    weights : array of k positive numbers
        The λ.
    factors : tuple of arrays
        One matrix for each axis, with unit columns: a, b, ….
    residuals, converged
        As in `Decomposition`: the root mean square over the axes of ‖T(I, b, c, …) − C(I, b, c, …)‖
        for all terms C together, or the residual of the symmetric embedding where terms were found
        by the power method.
    explained, rank_evidence, structure
        As in `Decomposition`. Terms are orthogonal if they are so along every axis.
    """

    weights: FloatArray = array_field("k", low=0)
    factors: tuple[FloatArray, ...] = arrays_field(rule=unit_vectors(None, "k"))
    residuals: FloatArray = array_field("k", low=0, nan=True)
    converged: NDArray[np.bool_] = array_field("k", kind="b")
    explained: float | None = array_field(default=None)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)
    structure: Structure | None = part_field(Structure, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(len(self.factors) >= 3, "it must have a matrix for each of at least three axes")

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return _verdict(self)

    def to_dense(self) -> FloatArray:
        """Return the sum of the terms as an array."""
        return sum_of_products(self.weights, self.factors)

    def to_tensorly(self) -> Any:
        """Return a `tensorly.cp_tensor.CPTensor`, for TensorLy and tlviz."""
        return as_tensorly(self.weights, self.factors)

    @classmethod
    def from_tensorly(cls, tensor: Any) -> Self:
        """Read a CP tensor of TensorLy; nothing is known of its residuals, which are NaN, nor of
        its convergence.
        """
        return cls._from_factors(*read_tensorly(tensor))

    @classmethod
    def _from_factors(cls, weights: FloatArray, factors: list[FloatArray]) -> Self:
        order = np.argsort(-np.abs(weights), kind="stable")
        factors[0] = factors[0] * np.where(weights < 0, -1.0, 1.0)
        unknown = np.full(weights.size, np.nan)
        sorted_factors = tuple(factor[:, order] for factor in factors)
        return cls(
            np.abs(weights)[order], sorted_factors, unknown, np.zeros(weights.size, dtype=bool)
        )


def structure_of(
    vectors: FloatArray,
    angle_errors: FloatArray,
    *,
    left: Left,
    complete: bool,
    overcomplete: bool = False,
) -> Structure:
    """Tell whether components are orthogonal, or linearly independent, within their errors.

    An error of angle e spreads over the d − 1 directions around a vector, so that the cosine of two
    vectors deviates by √((e² + e'²)/(d − 1)), and the smallest singular value of all vectors V,
    ‖Vc‖ for a unit vector c, by √(Σ cᵢ² eᵢ² / (d − 1)). `complete` says whether more components
    could not have been fitted, `overcomplete` whether the vectors are those of a symmetric tensor:
    more of them than dimensions can be unique. Those of an asymmetric tensor may be linearly
    dependent along an axis.
    """
    cosines = np.abs(vectors.T @ vectors)
    np.fill_diagonal(cosines, 0.0)
    cosine = float(np.max(cosines, initial=0.0))
    if complete and left in _REASONS:
        return Structure("unexplained", cosine, left, _REASONS[left])
    if vectors.shape[1] < 2:
        return Structure("orthogonal", 0.0, left, "there is only one")
    variances = angle_errors**2 / max(1, vectors.shape[0] - 1)
    errors = np.sqrt(np.add.outer(variances, variances))
    beyond = cosines > np.maximum(_MOST_ERRORS * errors, _ROUNDING)
    if overcomplete and vectors.shape[1] <= vectors.shape[0]:
        _, strengths, combinations = np.linalg.svd(vectors, full_matrices=False)
        error = math.sqrt(float(combinations[-1] ** 2 @ variances))
        if strengths[-1] <= max(_MOST_ERRORS * error, _ROUNDING):
            reason = (
                f"the smallest singular value of their vectors is {strengths[-1]:.2g}, with an "
                f"error of {error:.1g}"
            )
            return Structure("dependent", cosine, left, reason)
    if not beyond.any():
        return Structure(
            "orthogonal",
            cosine,
            left,
            f"the largest cosine of two is {cosine:.2g}, within its error",
        )
    if overcomplete and vectors.shape[1] > vectors.shape[0]:
        reason = (
            f"there are {vectors.shape[0]} dimensions; the largest cosine of two components is "
            f"{cosine:.2g}"
        )
        return Structure("overcomplete", cosine, left, reason)
    where = np.where(beyond, cosines, 0.0)
    first, second = (int(i) for i in np.unravel_index(int(np.argmax(where)), where.shape))
    pair = f"components {first} and {second} have a cosine of {cosines[first, second]:.2g}"
    reason = f"{pair}, with a standard error of {errors[first, second]:.1g}"
    return Structure("independent", cosine, left, reason)


def or_cancelling(structure: Structure, gram: FloatArray, weights: FloatArray) -> Structure:
    """Return a structure that says so if components nearly cancel each other, unless nothing at all
    is left.

    `gram` has the inner products of their rank-one tensors.
    """
    share = cancelled_share(gram, weights)
    if (
        structure.left == "nothing"
        or structure.kind in ("dependent", "unexplained")
        or share >= CANCELLED
    ):
        return structure
    reason = f"the squared norm of a sum of them is {share:.1g} of the sum of their squared norms"
    return replace(structure, kind="cancelling", reason=reason)

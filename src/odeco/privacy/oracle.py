"""An oracle that charges a ledger for every answer and adds noise to it."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import numpy as np

from odeco._util.arguments import check_choice, check_number
from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.ledger import Ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.tensors.oracle import Oracle, SensitiveOracle

Release = Literal["separate", "joint"]

#: Candidates of a joint release are merged from this cosine on. It hardly matters for the signal
#: that is needed (251 to 279 at d = 50, and 264 to 294 at d = 100, for cosines from 0.5 to 1); with
#: more signal, merging saves noise.
MERGE_COSINE = 0.8

#: A query whose largest entry is smaller is refused, because its powers in a sensitivity could
#: underflow.
_SHORTEST = 2.0**-60


@final
class PrivateOracle(Oracle):
    """T + noise: every answer is charged to a ledger first, and then given with noise scaled to its
    sensitivity.

    Parameters
    ----------
    oracle : SensitiveOracle
        Holds the data and declares how far a neighbour can move an answer. Anything else is
        refused: no noise makes its answers private. (The other order is fine:
        ``Whitened(PrivateOracle(data, …), …)``.)
    ledger : Ledger
        Is charged, or refuses; then nothing is computed.
    noise_multiplier : float
        z, the ratio of noise to sensitivity. A release costs 1/z² of the ledger's μ².
    release : {"joint", "separate"}
        ``"joint"``: all columns of a block are one release, with noise for their joint sensitivity.
        ``"separate"``: each column is a release of its own (Algorithm 3 of the paper), with noise
        for its own sensitivity; a block of L columns costs L/z².
    merge : float, optional
        Columns whose cosine, in absolute value, is at least this are merged into one query (joint
        releases only).
    noise : NoiseSource, optional
        The source of the noise; by default the operating system. With another source the answers
        are not private.
    data : str or tuple of str
        The pieces of data that the answers depend on; see `Ledger`.

    Attributes
    ----------
    last_scales : array
        Standard deviation of the noise on each coordinate of each column of the last answer;
        public.

    Notes
    -----
    **Why it is private.** A query is made of public randomness and earlier answers, so given those
    it is the same for two neighbours, and so is its declared sensitivity, and so is the noise. Each
    release is then a Gaussian mechanism of 1/z, and the ledger adds their squares (`Ledger` proves
    it for queries chosen from earlier answers).

    **Merging** replaces each near-duplicate by the mean direction of its cluster, queries those,
    and gives every member the same answer. It is a function of the query alone: post-processing. L
    candidates that have collapsed to a few clusters are then released at the price of the few;
    without it their joint sensitivity grows to the root of the size of a cluster, for answers that
    are nearly equal.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy import Ledger, PrivateOracle, RecordLevel
    >>> ledger = Ledger(mu_limit=0.5)
    >>> private = PrivateOracle(
    ...     RecordLevel(np.eye(3), norm_bound=1.0), ledger, noise_multiplier=4.0
    ... )
    >>> private.image(np.eye(3)).shape, round(ledger.mu, 6), round(float(private.last_scales[0]), 6)
    ((3, 3), 0.25, 2.666667)
    """

    exact = False

    def __init__(
        self,
        oracle: SensitiveOracle,
        ledger: Ledger,
        *,
        noise_multiplier: float,
        release: Release = "joint",
        merge: float | None = None,
        noise: NoiseSource | None = None,
        data: str | tuple[str, ...] | None = None,
    ) -> None:
        if not isinstance(oracle, SensitiveOracle):
            raise TypeError(
                f"{type(oracle).__name__} declares no sensitivity, so no noise makes its answers "
                "private. Make the data private first."
            )
        if not oracle.silent:
            raise TypeError(
                f"{type(oracle).__name__} may reveal its data without noise, as an error that "
                "names a bad row does. Hold the data in odeco.privacy.RecordLevel or EntryLevel."
            )
        check_choice("release", release, ("joint", "separate"))
        self.noise_multiplier = check_number("noise_multiplier", noise_multiplier, 0, math.inf)
        self.release = release
        self.merge = merge
        if merge is not None:
            check_number("merge", merge, 0, 1)
        source = SecureNoise() if noise is None else noise
        if data is None:
            self._releaser = Releaser(ledger, source)
        else:
            self._releaser = Releaser(ledger, source, data)
        self._oracle = oracle  # not for others: it gives access to the data
        self.dimension = oracle.dimension
        self.order = oracle.order
        self.rounding = oracle.rounding
        self.neighbours = oracle.neighbours
        self.last_scales: FloatArray = np.empty(0)

    @property
    def parts(self) -> tuple[int, ...]:
        """Sizes of the pieces that a vector is made of."""
        return self._oracle.parts

    @property
    def is_private(self) -> bool:
        """Whether the noise comes from the operating system."""
        return self._releaser.is_private

    def _image(self, block: FloatArray) -> FloatArray:
        return self._answer("image", block, (self.dimension,))

    def _value(self, block: FloatArray) -> FloatArray:
        return self._answer("value", block, ())

    def _answer(
        self, query: Literal["image", "value"], block: FloatArray, rest: tuple[int, ...]
    ) -> FloatArray:
        _check_query(block)
        holder = self._oracle
        ask = holder.image if query == "image" else holder.value
        declare = holder.sensitivity if query == "image" else holder.value_sensitivity
        if self.release == "separate":
            n_columns = block.shape[1]
            sensitivities = np.array([declare(block[:, [column]]) for column in range(n_columns)])
            answer, self.last_scales = self._releaser.release_columns(
                (
                    f"{query} of {n_columns} candidates, one by one, each with noise for its own "
                    "sensitivity"
                ),
                lambda: ask(block),
                shape=(*rest, n_columns),
                sensitivities=sensitivities,
                noise_multiplier=self.noise_multiplier,
            )
            return answer
        asked = block
        members = np.arange(block.shape[1])
        signs = np.ones(block.shape[1])
        if self.merge is not None:
            asked, members, signs = merge_duplicates(block, self.merge)
        answer, scale = self._releaser.release(
            f"{query} of {asked.shape[1]} candidates together",
            lambda: ask(asked),
            size=math.prod(rest) * asked.shape[1],
            sensitivity=declare(asked),
            noise_multiplier=self.noise_multiplier,
        )
        self.last_scales = np.full(block.shape[1], scale)
        # T(I, −u, …) has the sign (−1)^(p−1), and T(−u, −u, …) the sign (−1)^p.
        odd = (self.order - (query == "image")) % 2 == 1
        spread: FloatArray = answer[..., members] * (signs if odd else 1.0)
        return spread


def _check_query(block: FloatArray) -> None:
    """Raise if a query is not finite, or so small or large that its sensitivity would under- or
    overflow.

    Queries are public, so this says nothing about the data.
    """
    if not np.isfinite(block).all():
        raise ValueError(
            "A query must be finite. Got NaN or infinity. Check how the candidates were made."
        )
    lengths = np.abs(block).max(axis=0, initial=0.0)
    if not np.all((lengths == 0) | ((lengths > _SHORTEST) & (lengths < 1 / _SHORTEST))):
        raise ValueError(
            f"The largest entry of each column of a query must lie between {_SHORTEST:.0e} and "
            f"{1 / _SHORTEST:.0e}. Got {lengths.min():.1e} to {lengths.max():.1e}. Normalise the "
            "columns."
        )


def merge_duplicates(block: FloatArray, cosine: float) -> tuple[FloatArray, IndexArray, FloatArray]:
    """Return representatives of the columns of a block, which one stands for each column, and with
    which sign.

    The first column that no cluster has yet takes in all others within the cosine; its cluster is
    represented by their mean direction, of the mean length. Columns that are alone are represented
    by themselves, to the last bit.
    """
    lengths = np.linalg.norm(block, axis=0)
    units: FloatArray = block / np.where(lengths > 0, lengths, 1.0)
    overlaps: FloatArray = units.T @ units
    members = np.full(block.shape[1], -1)
    signs = np.ones(block.shape[1])
    representatives: list[Any] = []
    for column in range(block.shape[1]):
        if members[column] >= 0:
            continue
        cluster = np.flatnonzero((members < 0) & (np.abs(overlaps[column]) >= cosine))
        cluster = np.union1d(cluster, [column])
        members[cluster] = len(representatives)
        signs[cluster] = np.where(overlaps[column, cluster] < 0, -1.0, 1.0)
        total = block[:, cluster] @ signs[cluster]
        mean_length = float(lengths[cluster].mean())
        alone = cluster.size == 1
        representatives.append(
            block[:, column] if alone else total * (mean_length / np.linalg.norm(total))
        )
    return np.stack(representatives, axis=1), members, signs

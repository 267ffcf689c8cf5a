"""Sources are learnt in one pass: found in the first block, and refined by a Newton step a block.

A step that a block asks for is taken in proportion to the share of the block in all rows so far. Near the solution the
steps are linear in the rows, so that the result is what all rows would have asked for together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import array, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.latent_model import RowStream
from odeco.models.ica.densities import N_BINS, N_SUMS, fit_scores, histogram, score_means
from odeco.models.ica.learn import START_ROWS, FittedSources, Settings, fit_ica
from odeco.models.ica.moments import BLOCK, SecondMoment, scaled, whiten
from odeco.models.ica.newton import ScoreStatistics, newton_step, power_sums

#: How the settings that are no numbers are written down.
_ALL, _AUTO = 0, -1


@dataclass(eq=False)
class SourceStream(RowStream):
    """Where a model of sources that learns in one pass stands.

    Attributes
    ----------
    n_components, max_iter, tol, seed : numbers
        What the first block is learnt with; 0 components stands for None, and −1 for ``"auto"``.
    n_learnt, n_iter : int
        Rows learnt from, and Newton's steps.
    exponents : array
        The units of columns, which the first block chooses; all that follows is in these.
    mean, scatter : arrays
        The second moment of the rows learnt from.
    n_directions : int
        Number of directions in which sources are looked for.
    unmixing, powers, counts : arrays
        The unmixing; sums over rows that give the scores of sources; their histograms. Empty before the first block.
    """

    RULES: ClassVar = {
        "held": array(None, "n_features"),
        "n_rows": array(kind="i", low=0),
        "n_components": array(kind="i", low=_AUTO),
        "max_iter": array(kind="i", low=1),
        "tol": array(low=0),
        "seed": array(kind="i", low=0),
        "n_learnt": array(kind="i", low=0),
        "n_iter": array(kind="i", low=0),
        "exponents": FittedSources.RULES["exponents"],
        "mean": array("n_features"),
        "scatter": array("n_features", "n_features"),
        "n_directions": array(kind="i", low=0),
        "unmixing": array("sources", "n_features"),
        "powers": array("sums", "sources"),
        "counts": array("sources", "source bins", low=0),
    }

    n_components: int
    max_iter: int
    tol: float
    seed: int
    n_learnt: int
    n_iter: int
    exponents: IndexArray
    mean: FloatArray
    scatter: FloatArray
    n_directions: int
    unmixing: FloatArray
    powers: FloatArray
    counts: FloatArray

    @classmethod
    def begin(cls, settings: Settings, n_features: int, seed: int) -> Self:
        """Return the stream before its first row."""
        wanted = settings.n_components
        return cls(
            held=np.zeros((0, n_features)),
            n_rows=0,
            n_components=_ALL if wanted is None else _AUTO if wanted == "auto" else wanted,
            max_iter=settings.max_iter,
            tol=settings.tol,
            seed=seed,
            n_learnt=0,
            n_iter=0,
            exponents=np.zeros(n_features, np.int64),
            mean=np.zeros(n_features),
            scatter=np.zeros((n_features, n_features)),
            n_directions=0,
            unmixing=np.zeros((0, n_features)),
            powers=np.zeros((N_SUMS, 0)),
            counts=np.zeros((0, N_BINS)),
        )

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote; a stream that has begun must have sums of rows, and the others none."""
        read = super().from_arrays(prefix, arrays)
        require(len(read.powers) == N_SUMS and read.counts.shape[1] == N_BINS, "its sums must be complete")
        require(read.n_components <= len(read.mean), "it must have at most as many components as columns")
        begun = bool(len(read.unmixing)) and bool(np.all(read.powers[0] > 0))
        require(begun == (read.n_learnt > 0), "it must have sources once it has learnt from rows, and none before")
        require(read.n_rows == read.n_learnt + len(read.held), "its rows must be those learnt from and those that wait")
        return read

    @property
    def next_size(self) -> int:
        """The number of rows of the next block."""
        return BLOCK if self.n_learnt else START_ROWS

    def absorb(self, block: Any) -> None:
        """Find sources in the first block, and take a step with every other."""
        if not self.n_learnt:
            self._start(block)
            return
        block = scaled(block, self.exponents)
        before = SecondMoment(self.n_learnt, self.mean, self.scatter)
        with one_blas_thread():
            moment = before + SecondMoment.of(block)
            scores = fit_scores(self.powers)
            columns = (block - moment.mean).T
            sums = ScoreStatistics.of_rows(self.unmixing, columns, scores)
            step = newton_step(sums, scores, n_seen=moment.n_rows)
            self.powers, self.counts = self.powers + sums.powers, self.counts + histogram(self.unmixing @ columns)
            self.unmixing = step.apply(self.unmixing, moment.covariance, len(block) / moment.n_rows)
        self.n_learnt, self.mean, self.scatter = moment.n_rows, moment.mean, moment.scatter
        self.n_iter += 1

    def _start(self, block: FloatArray) -> None:
        found = fit_ica(block, self._settings, seed=self.seed)
        self.n_learnt, self.n_iter, self.mean = found.n_rows, found.n_iter, found.mean
        self.exponents = found.exponents
        self.scatter = found.covariance * found.n_rows
        self.n_directions, self.unmixing, self.counts = len(found.whitening), found.unmixing, found.counts
        self.powers = power_sums(found.unmixing, (scaled(block, found.exponents) - found.mean).T)

    @property
    def _settings(self) -> Settings:
        wanted = {_ALL: None, _AUTO: "auto"}.get(self.n_components, self.n_components)
        return Settings(wanted, self.max_iter, self.tol)  # type: ignore[arg-type]

    def fitted(self) -> FittedSources:
        """Return what all rows so far say, those that wait for their block included."""
        if not self.n_learnt:
            return fit_ica(self.held, self._settings, seed=self.seed)
        whole = copy.copy(self)
        if len(self.held):
            whole.absorb(self.held)
        covariance = whole.scatter / whole.n_learnt
        with one_blas_thread():
            whitening = whiten(covariance, self._directions).forward.T
            # Directions that the first block chose have become more certain; in all directions this changes nothing.
            unmixing = whole.unmixing @ covariance @ whitening.T @ whitening
        information = score_means(fit_scores(whole.powers), whole.powers)[1]
        return FittedSources(
            whole.exponents,
            whole.mean,
            covariance,
            unmixing,
            whitening,
            information,
            whole.counts,
            whole.n_learnt,
            whole.n_iter,
            1,
        )

    @property
    def _directions(self) -> int | None:
        """The number of directions to whiten, or None if it is all of them."""
        return self.n_directions if self.n_components > 0 else None

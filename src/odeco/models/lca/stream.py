"""Classes from respondents who arrive: the first block starts the model, and every further block moves it.

Two sums are kept. The recent one forgets: the block t has the share t^(−0.6) of it, so that the classes, which are
those of the recent sum, soon leave the first block behind (Cappé and Moulines, On-line expectation-maximization
algorithm for latent data models, 2009). The whole one forgets nothing: each respondent is in it by the classes of the
time of arrival. The model is that of the whole sum, which averages the noise of recent ones away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import array, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.latent_model import RowStream
from odeco.models.lca.categories import Categories, Questions, from_texts
from odeco.models.lca.em import Classes, Sums, maximised, sums_of
from odeco.models.lca.learn import LearningSettings, frequencies_of, learn_classes
from odeco.models.lca.spec import ANSWERS_RULES, FittedClasses, check_answers

#: The rows of the first block, and of every further one.
FIRST, FURTHER = 16_384, 4_096

#: The share of block t is t to this power.
_POWER = -0.6


@dataclass(eq=False)
class ClassStream(RowStream):
    """Where a stream of respondents stands.

    Attributes
    ----------
    texts, kinds, sizes : arrays
        The answers to the questions, as in `FittedClasses`.
    counts : array
        How often each answer was given.
    recent_answers, recent_weights : arrays
        The recent sum, for one respondent: answers x k, and k. Before the first block k is 0.
    whole_answers, whole_weights : arrays
        The whole sum.
    log_likelihood : float
        The sum of the log-likelihoods of the respondents in the whole sum.
    n_components, n_starts, n_steps, tolerance, smoothing, seed
        How the first block is learnt; fixed when the stream begins.
    """

    RULES: ClassVar = {
        "held": array(None, "n_features", kind="i", low=-1, high=2**20),
        "n_rows": array(kind="i", low=0),
        **ANSWERS_RULES,
        "counts": array("answers", low=0),
        "recent_answers": array("answers", "begun", low=0, high=1 + 1e-6),
        "recent_weights": array("begun", low=0, high=1 + 1e-6),
        "whole_answers": array("answers", "begun", low=0),
        "whole_weights": array("begun", low=0),
        "log_likelihood": array(),
        "n_components": array(kind="i", low=1, high=2**20),
        "n_starts": array(kind="i", low=1, high=2**20),
        "n_steps": array(kind="i", low=1),
        "tolerance": array(low=0),
        "smoothing": array(low=0),
        "seed": array(kind="i", low=0),
    }

    texts: Any
    kinds: IndexArray
    sizes: IndexArray
    counts: FloatArray
    recent_answers: FloatArray
    recent_weights: FloatArray
    whole_answers: FloatArray
    whole_weights: FloatArray
    log_likelihood: float
    n_components: int
    n_starts: int
    n_steps: int
    tolerance: float
    smoothing: float
    seed: int

    @classmethod
    def begin(
        cls, texts: Any, kinds: IndexArray, sizes: IndexArray, k: int, settings: LearningSettings, seed: int
    ) -> ClassStream:
        """Return a stream without respondents."""
        none = np.zeros((int(sizes.sum()), 0))
        return cls(
            np.zeros((0, sizes.size), dtype=np.int64),
            0,
            texts,
            kinds,
            sizes,
            np.zeros(len(none)),
            none,
            none[0],
            none,
            none[0],
            0.0,
            k,
            settings.n_starts,
            settings.n_steps,
            settings.tolerance,
            settings.smoothing,
            seed,
        )

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote."""
        made = super().from_arrays(prefix, arrays)
        check_answers(made.texts, made.kinds, made.sizes)
        require(bool(np.all(made.held < made.sizes)), "answers that wait must be among those to their questions")
        require(made.recent_weights.size in (0, made.n_components), "sums must be of all classes or not begun")
        require(len(made.held) < made.next_size, "fewer respondents must wait than a block has")
        require(len(made.held) <= made.n_rows, "no more respondents must wait than came")
        return made

    @property
    def is_begun(self) -> bool:
        """Whether the first block was complete."""
        return self.recent_weights.size > 0

    @property
    def next_size(self) -> int:
        """The number of respondents of the next block."""
        return FURTHER if self.is_begun else FIRST

    @property
    def questions(self) -> Questions:
        """How many answers each question has."""
        return Questions(self.sizes)

    @property
    def categories(self) -> Categories:
        """The answers to each question."""
        return from_texts(self.texts, self.kinds, self.sizes)

    def absorb(self, block: Any) -> None:
        """Start from the first block, or move the classes by a further one."""
        marked = self.questions.indicators(block)
        self.counts = self.counts + marked.sum(axis=0, dtype=np.float64)
        if not self.is_begun:
            found = learn_classes(marked, self.questions, self.n_components, self._settings, seed=self.seed).params
            new = sums_of(found, marked)
            self._set(new.answers / len(block), new.weights / len(block), new)
            return
        n_before = float(self.whole_weights.sum())
        new = sums_of(self._recent(), marked)
        share = (1 + n_before / FURTHER) ** _POWER
        self._set(
            (1 - share) * self.recent_answers + share / len(block) * new.answers,
            (1 - share) * self.recent_weights + share / len(block) * new.weights,
            self._whole() + new,
        )

    def fitted(self) -> FittedClasses:
        """Return the classes of all respondents so far, those who wait included."""
        marked = self.questions.indicators(self.held)
        if not self.is_begun:
            if self.n_rows < 2:
                raise ValueError(
                    f"A stream must have at least 2 respondents before classes can be learnt. Got {self.n_rows}. "
                    "Call partial_fit with more."
                )
            found = learn_classes(marked, self.questions, self.n_components, self._settings, seed=self.seed)
            classes, likelihood, n_steps, done = found.params, found.log_likelihood, found.n_iter, found.converged
        else:
            whole = self._whole() + sums_of(self._recent(), marked) if len(marked) else self._whole()
            classes = self._maximised(whole)  # in the order that the first block gave them
            likelihood, n_steps, done = whole.log_likelihood / self.n_rows, 0, True
        counts = self.counts + marked.sum(axis=0, dtype=np.float64)
        return FittedClasses(
            weights=classes.weights,
            answers=classes.answers,
            texts=self.texts,
            kinds=self.kinds,
            sizes=self.sizes,
            frequencies=frequencies_of(counts, self.questions),
            n_rows=self.n_rows,
            log_likelihood=likelihood,
            n_steps=n_steps,
            converged=done,
            tried=np.zeros(0, dtype=np.int64),
            gains=np.zeros(0),
        )

    @property
    def _settings(self) -> LearningSettings:
        return LearningSettings(self.n_starts, self.n_steps, self.tolerance, self.smoothing)

    def _recent(self) -> Classes:
        n_rows = float(self.whole_weights.sum())
        return self._maximised(Sums(n_rows * self.recent_answers, n_rows * self.recent_weights, 0.0))

    def _whole(self) -> Sums:
        return Sums(self.whole_answers, self.whole_weights, self.log_likelihood)

    def _maximised(self, sums: Sums) -> Classes:
        return maximised(sums, self.questions, frequencies_of(self.counts, self.questions), self.smoothing)

    def _set(self, answers: FloatArray, weights: FloatArray, whole: Sums) -> None:
        self.recent_answers, self.recent_weights = answers, weights
        self.whole_answers, self.whole_weights = whole.answers, whole.weights
        self.log_likelihood = whole.log_likelihood

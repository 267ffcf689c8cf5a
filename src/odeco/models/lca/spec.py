"""The settings of a model of latent classes, checked once before anything is learnt.

What a model of latent classes has learnt.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from odeco._util.arguments import check_choice, check_count, check_number, check_tolerance
from odeco._util.schema import array, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.em import EMResult
from odeco.models.engine.latent_model import State
from odeco.models.lca.categories import Bits, Categories, Questions, from_texts, to_texts
from odeco.models.lca.em import Classes
from odeco.models.lca.learn import LearningSettings, frequencies_of
from odeco.models.lca.private import FoundPrivately
from odeco.privacy.calibration import check_delta, check_epsilon
from odeco.privacy.ledger_file import Guarantee


@dataclass(frozen=True)
class ClassSettings:
    """Checked settings.

    Attributes
    ----------
    n_components : int or "auto"
        Number of classes.
    learning : LearningSettings
        How they are learnt.
    missing_value : number, text or None
        What stands for no answer, beside NaN and the like.
    guarantee : Guarantee or None
        What is promised, if the model is to be private.
    """

    n_components: int | Literal["auto"]
    learning: LearningSettings
    missing_value: Any
    guarantee: Guarantee | None


def check_settings(model: Any) -> ClassSettings:
    """Return the checked settings of a LatentClasses, or raise."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    missing = model.missing_values
    if isinstance(missing, bool) or not (missing is None or isinstance(missing, str | numbers.Real)):
        raise ValueError(f"`missing_values` must be a number, a text or None. Got {missing!r}.")
    check_choice("handle_unknown", model.handle_unknown, ("error", "missing"))
    check_choice("neighbour_relation", model.neighbour_relation, ("replace", "add_remove"))
    learning = LearningSettings(
        n_starts=check_count("n_starts", model.n_starts),
        n_steps=check_count("max_iter", model.max_iter),
        tolerance=check_tolerance(model.tol),
        smoothing=check_number("smoothing", model.smoothing, 0.0, float("inf"), closed=True),
    )
    return ClassSettings(
        "auto" if automatic else check_count("n_components", k), learning, missing, _check_guarantee(model, automatic)
    )


def _check_guarantee(model: Any, automatic: bool) -> Guarantee | None:
    missing = [name for name in ("epsilon", "delta") if getattr(model, name) is None]
    if len(missing) == 1:
        raise ValueError(
            f"A private model needs `epsilon` and `delta`. Got no `{missing[0]}`. Pass both, or neither for a model "
            "without privacy."
        )
    if missing:
        if model.ledger is not None:
            raise ValueError(
                f"`ledger` is for private models. Got {os.fspath(model.ledger)!r} without `epsilon` and `delta`. "
                "Pass these, or leave it out."
            )
        return None
    if automatic:
        raise ValueError(
            "A private model needs a number of classes: choosing it looks at the respondents again. Got "
            "n_components='auto'. Pass a number."
        )
    check_epsilon(model.epsilon)
    check_delta(model.delta)
    return Guarantee(model.epsilon, model.delta, model.ledger)


#: What must hold for the answers to the questions, in a file: their texts, kinds and numbers.
ANSWERS_RULES: Mapping[str, Any] = {
    "texts": array("answers", kind="U"),
    "kinds": array("n_features", kind="i", low=0, high=3),
    "sizes": array("n_features", kind="i", low=1, high=2**20),
}


def check_answers(texts: Any, kinds: IndexArray, sizes: IndexArray) -> Categories:
    """Return the answers to each question as a file has them, or raise if their numbers do not fit."""
    require(int(sizes.sum()) == texts.size, "`sizes` must say how many answers each question has")
    return from_texts(texts, kinds, sizes)


@dataclass(eq=False)
class FittedClasses(State):
    """Classes of respondents, and the answers they were learnt from.

    Attributes
    ----------
    weights : array
        The probability of each class, the largest first after `fit`.
    answers : array, answers x k
        The probability of each answer in each class; those of one question sum to one.
    texts, kinds, sizes : arrays
        The answers to the questions: see `to_texts`; and how many each question has.
    frequencies : array
        The share of each answer among those who answered its question.
    n_rows : int
        How many respondents they were learnt from.
    log_likelihood : float
        The mean log-likelihood of these, before the last step; of a private model NaN.
    n_steps : int
        How many steps were taken from the best start.
    converged : bool
        Whether the last of them gained less than the tolerance.
    tried, gains : arrays
        The numbers of classes that were tried, if it was to be found, and the mean log-likelihood of respondents who
        were not learnt from.
    """

    RULES: ClassVar = {
        "weights": array("classes", low=0, high=1),
        "answers": array("answers", "classes", low=0, high=1 + 1e-9),
        **ANSWERS_RULES,
        "frequencies": array("answers", low=0, high=1 + 1e-9),
        "n_rows": array(kind="i", low=0),
        "log_likelihood": array(nan=True),
        "n_steps": array(kind="i", low=0),
        "converged": array(kind="b"),
        "tried": array("tried", kind="i", low=1),
        "gains": array("tried"),
    }

    weights: FloatArray
    answers: FloatArray
    texts: Any
    kinds: IndexArray
    sizes: IndexArray
    frequencies: FloatArray
    n_rows: int
    log_likelihood: float
    n_steps: int
    converged: bool
    tried: IndexArray
    gains: FloatArray

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote."""
        made = super().from_arrays(prefix, arrays)
        check_answers(made.texts, made.kinds, made.sizes)
        require(made.weights.size > 0 and abs(made.weights.sum() - 1) < 1e-6, "`weights` must sum to one")
        totals = made.questions.sum_by_question(made.answers)
        require(bool(np.all(np.abs(totals - 1) < 1e-6)), "the probabilities of the answers to a question must sum to 1")
        return made

    @classmethod
    def of(cls, found: EMResult[Classes], tried: Mapping[int, float], categories: Categories, marked: Bits) -> Self:
        """Return what was found among respondents."""
        texts, kinds = to_texts(categories)
        sizes = np.array([own.size for own in categories])
        return cls(
            weights=found.params.weights,
            answers=found.params.answers,
            texts=texts,
            kinds=kinds,
            sizes=sizes,
            frequencies=frequencies_of(marked.sum(axis=0, dtype=np.float64), Questions(sizes)),
            n_rows=len(marked),
            log_likelihood=found.log_likelihood,
            n_steps=found.n_iter,
            converged=found.converged,
            tried=np.array(list(tried), dtype=np.int64),
            gains=np.array(list(tried.values()), dtype=np.float64),
        )

    @classmethod
    def of_private(cls, found: FoundPrivately, categories: Categories, n_rows: int, *, n_steps: int) -> Self:
        """Return what was found among private respondents; every number of it was released or follows from what was."""
        texts, kinds = to_texts(categories)
        return cls(
            weights=found.classes.weights,
            answers=found.classes.answers,
            texts=texts,
            kinds=kinds,
            sizes=np.array([own.size for own in categories]),
            frequencies=found.frequencies,
            n_rows=n_rows,
            log_likelihood=float("nan"),
            n_steps=n_steps,
            converged=True,
            tried=np.zeros(0, dtype=np.int64),
            gains=np.zeros(0),
        )

    @property
    def classes(self) -> Classes:
        """The classes, as steps take them."""
        return Classes(self.weights, self.answers)

    @property
    def questions(self) -> Questions:
        """How many answers each question has."""
        return Questions(self.sizes)

    @cached_property
    def categories(self) -> Categories:
        """The answers to each question."""
        return from_texts(self.texts, self.kinds, self.sizes)

    @property
    def n_parameters(self) -> int:
        """How many numbers describe the classes."""
        k = self.weights.size
        return k - 1 + k * self.questions.n_free

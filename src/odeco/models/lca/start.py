"""Starts of EM: the moments of three views, and random respondents.

The questions are divided into three views, which are independent given the class.

A view is the indicators of the answers to its questions, each divided by the share of respondents who answered: then
its mean within a class is the probability of the answer there, whoever did not answer, as long as that does not depend
on what the answer would have been. Questions of few answers span few directions: q questions with m answers each have
q (m − 1) + 1. Where that is not enough for k classes, a view has the products of the indicators of two of its questions
as well, whose mean within a class is the product of two probabilities. `classes_of_three_views` finds the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.moments import classes_of_three_views
from odeco.models.engine.weights import count_rows, split, times
from odeco.models.lca.classes import Classes
from odeco.privacy.holders.answers import Bits, Questions, blocks_of

#: A view needs this many directions for each class, or it has products of indicators too.
_DIRECTIONS = 1.5

#: A view has at most this many products.
_MAX_PRODUCTS = 400

#: Every class answers, in this share, as all respondents together do: no answer is impossible because of noise.
_BACKGROUND = 0.05

#: A random start is between the answers of one respondent and those of all, in these shares.
_OWN_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class View:
    """The features of one view.

    Attributes
    ----------
    answers : array
        The answers to its questions.
    products : array, products x 2
        Two answers each, to different questions.
    """

    answers: IndexArray
    products: IndexArray

    def features(self, block: Bits) -> FloatArray:
        """Return the features of some respondents, not yet divided by the shares of those who answered."""
        single = block[:, self.answers]
        double = block[:, self.products[:, 0]] * block[:, self.products[:, 1]]
        return np.hstack([single, double]).astype(np.float64)

    def observed(self, answered: FloatArray, owners: IndexArray) -> FloatArray:
        """Return the share of respondents whose answers each feature is made of; `answered` is by question."""
        shares = answered[owners]
        return np.concatenate([shares[self.answers], shares[self.products].prod(axis=1)])


def split_questions(questions: Questions, n_components: int, rng: np.random.Generator) -> tuple[View, View, View]:
    """Divide the questions into three views at random, such that their numbers of answers are about equal."""
    order = rng.permutation(questions.sizes.size)
    order = order[np.argsort(-questions.sizes[order], kind="stable")]
    parts: tuple[list[int], ...] = ([], [], [])
    for question in order:
        min(parts, key=lambda each: sum(questions.sizes[own] - 1 for own in each)).append(int(question))
    return tuple(_view(questions, np.array(sorted(each), dtype=np.int64), n_components, rng) for each in parts)  # type: ignore[return-value]


def _view(questions: Questions, own: IndexArray, n_components: int, rng: np.random.Generator) -> View:
    answers = np.flatnonzero(np.isin(questions.owners, own))
    products = np.zeros((0, 2), dtype=np.int64)
    if 1 + np.sum(questions.sizes[own] - 1) < _DIRECTIONS * n_components:
        first, second = np.triu_indices(answers.size, 1)
        apart = questions.owners[answers[first]] != questions.owners[answers[second]]
        products = np.column_stack([answers[first[apart]], answers[second[apart]]])
        products = products[np.sort(rng.permutation(len(products))[:_MAX_PRODUCTS])]
    return View(answers, products)


def can_start(questions: Questions, n_components: int) -> bool:
    """Tell whether three views of the questions have enough features to identify k classes."""
    views = split_questions(questions, n_components, np.random.default_rng(0))
    return min(view.answers.size + len(view.products) for view in views) >= n_components


def classes_from_moments(
    data: Any, questions: Questions, frequencies: FloatArray, n_components: int, *, seed: int
) -> Classes:
    """Return k classes that the moments of three views give.

    Parameters
    ----------
    data : array, respondents x answers, or Weighted
        The indicators of the answers that were given.
    questions : Questions
        The layout of the indicators; there are at least three questions.
    frequencies : array
        The share of each answer among those who answered its question.
    n_components : int
        Number k of classes.
    seed : int
        Seed of the split into views and of the decomposition.
    """
    rng, n_rows = np.random.default_rng(seed), count_rows(data)
    views = split_questions(questions, n_components, rng)
    answered = np.maximum(questions.sum_by_question(count_answers(data)) / n_rows, 1 / n_rows)
    scales = [1 / view.observed(answered, questions.owners) for view in views]

    def pairs_of(block: Any) -> list[FloatArray]:
        given, weights = split(block)
        a, b, c = (view.features(given) for view in views)
        wa, wb, wc = (times(each, weights) for each in (a, b, c))
        return [wa.T @ b, wb.T @ c, wa.T @ c, wa.sum(axis=0), wb.sum(axis=0), wc.sum(axis=0)]

    ab, bc, ac, *counts = _added(data, pairs_of)
    means = [np.maximum(count / n_rows * scale, 0.1 / n_rows) for count, scale in zip(counts, scales, strict=True)]
    pairs = (
        scales[0][:, None] * ab * scales[1] / n_rows,
        scales[1][:, None] * bc * scales[2] / n_rows,
        scales[0][:, None] * ac * scales[2] / n_rows,
    )

    def triples(*maps: FloatArray) -> FloatArray:
        scaled = [scale[:, None] * each for scale, each in zip(scales, maps, strict=True)]
        k = maps[0].shape[1]

        def work(block: Any) -> list[FloatArray]:
            given, weights = split(block)
            a, b, c = (view.features(given) @ each for view, each in zip(views, scaled, strict=True))
            return [times(a, weights).T @ (b[:, :, None] * c[:, None, :]).reshape(len(a), k * k)]

        return (_added(data, work)[0] / n_rows).reshape(k, k, k)

    found = classes_of_three_views(pairs, (means[0], means[1], means[2]), triples, n_components, seed=seed)
    detectors = [scale[:, None] * each for scale, each in zip(scales, found.detectors, strict=True)]

    def means_of(block: Any) -> list[FloatArray]:
        given, weights = split(block)
        a, b, c = (view.features(given) @ each for view, each in zip(views, detectors, strict=True))
        others = (times(each, weights) for each in (b * c, a * c, a * b))
        return [given[:, view.answers].T.astype(np.float64) @ other for view, other in zip(views, others, strict=True)]

    answers = np.empty((questions.n_answers, n_components))
    for view, sums in zip(views, _added(data, means_of), strict=True):
        answers[view.answers] = sums
    return Classes(found.weights, as_probabilities(answers, questions, frequencies, _BACKGROUND))


def random_classes(
    data: Any, questions: Questions, frequencies: FloatArray, n_components: int, *, seed: int
) -> Classes:
    """Return classes that answer partly as a random respondent does, and partly as all do."""
    rng, (marked, _) = np.random.default_rng(seed), split(data)
    chosen = marked[rng.integers(len(marked), size=n_components)].T.astype(np.float64)
    noise = rng.random(chosen.shape)  # respondents who answer alike must not give classes that stay alike
    drawn = _OWN_SHARE * chosen + (1 - _OWN_SHARE) * frequencies[:, None] * (0.5 + noise)
    weights = np.full(n_components, 1 / n_components)
    return Classes(weights, as_probabilities(drawn, questions, frequencies, background=0.0))


def as_probabilities(
    numbers: FloatArray, questions: Questions, frequencies: FloatArray, background: float
) -> FloatArray:
    """Return numbers as probabilities of the answers to each question, mixed with the frequencies of all."""
    positive = np.maximum(numbers, 0.0)
    totals = questions.sum_by_question(positive)[questions.owners]
    shares = np.where(totals > 0, positive / np.where(totals > 0, totals, 1.0), frequencies[:, None])
    return np.asarray((1 - background) * shares + background * frequencies[:, None])


def count_answers(data: Any) -> FloatArray:
    """Return how often each answer was given."""
    marked, weights = split(data)
    if weights is None:
        return np.asarray(marked.sum(axis=0, dtype=np.float64))
    return _added(data, lambda block: [block.weights @ block.rows.astype(np.float64)])[0]


def _added(data: Any, work: Callable[[Any], list[FloatArray]]) -> list[FloatArray]:
    """Return the sums of several arrays over blocks, in the order of the blocks."""
    total: list[FloatArray] = []
    for parts in map_blocks(work, blocks_of(data), parallel=True):
        total = [mine + more for mine, more in zip(total, parts, strict=True)] if total else parts
    return total

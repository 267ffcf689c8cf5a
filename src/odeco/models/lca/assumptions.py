"""Whether answers are what latent classes take them for: within a class, they do not depend on each
other.

Classes also describe a scale: if respondents differ by degrees, in a trait that makes some answers
more likely and others less, classes are steps of it. More respondents then show more of them, and
each is certain by its likelihood. So fitted classes are compared with a model of one trait and no
classes: the nominal response model (Bock, Psychometrika 1972), in which the trait t is standard
normal, and the answer r to a question has the log-odds a_r t + b_r. For two answers it is the
two-parameter logistic model of item response theory. If its Bayesian information criterion (BIC) is
better by what counts as strong evidence, classes may be steps of a scale.

The integral over t is a sum over the nodes of Gauss-Hermite quadrature. So the model is one of
classes with known weights, whose log-odds are linear in t, and the E step is theirs. The M step is
a multinomial logistic regression for each question, in steps that raise its likelihood (Böhning,
Annals of the Institute of Statistical Mathematics, 1992): the matrix of second derivatives of R
answers is at least −(I − 11ᵀ/R) ⊗ ZᵀNZ / 2, with rows (1, t) of Z and the numbers N of respondents
at the nodes.
"""

from __future__ import annotations

import math

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.lca.classes import Classes
from odeco.privacy.holders.answers import Bits
from odeco.privacy.holders.tables import Levels

#: Nodes of the quadrature.
_N_NODES = 15

#: EM ends after this many iterations, or when one gains less than this for all respondents
#: together.
_MAX_ITER, _TOLERANCE = 200, 1e-2

#: Steps of the logistic regressions in an M step.
_N_STEPS = 5

#: The prior of a question, over all nodes: this number of respondents who answer as all do.
_PRIOR = 1e-2

#: A difference of BIC that is strong evidence (Kass and Raftery, Journal of the American
#: Statistical Association 1995).
_STRONG = 6.0

#: What follows.
SCALE = "Classes may be steps of a scale: one trait by degrees explains the answers better (BIC)."

#: At most this many indicators of answers are compared, those of the first respondents.
_MAX_NUMBERS = 2**22


def is_scale(classes: Classes, marked: Bits, questions: Levels, n_parameters: int) -> bool:
    """Return whether one trait explains the answers better than classes that were fitted to
    them.
    """
    if classes.weights.size == 1 or questions.sizes.size < 3:
        return False
    given = marked[: max(_MAX_NUMBERS // questions.n_levels, 1)].astype(np.float64)
    gain = float(classes.posterior(given)[1].sum()) - trait_log_likelihood(given, questions)
    cost = (n_parameters - 2 * questions.n_free) * math.log(len(given)) / 2
    return 2 * (cost - gain) > _STRONG


def trait_log_likelihood(given: FloatArray, questions: Levels) -> float:
    """Return the log-likelihood of the answers under one trait; `given` are their indicators."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NODES)
    weights = weights / weights.sum()
    prior = _PRIOR * (given.sum(axis=0) + 1)[:, None] / len(given) * weights
    # The first trait is the leading direction of the answers, cut into parts as large as the
    # weights of the nodes.
    order = np.argsort(_leading_scores(given), kind="stable")
    places = np.empty(len(given), np.int64)
    places[order] = np.searchsorted(np.cumsum(weights), (np.arange(len(given)) + 0.5) / len(given))
    counts = given.T @ np.eye(_N_NODES)[np.minimum(places, _N_NODES - 1)]
    coefficients, before = np.zeros((questions.n_levels, 2)), -math.inf
    design = np.column_stack([np.ones(_N_NODES), nodes])
    for _ in range(_MAX_ITER):
        coefficients = _regress(coefficients, counts + prior, design, questions)
        shares, log_likelihoods = Classes(
            weights, _softmax(coefficients @ design.T, questions)
        ).posterior(given)
        after = float(log_likelihoods.sum())
        if after - before < _TOLERANCE:
            break
        counts, before = given.T @ shares, after
    return max(before, after)


def _regress(
    coefficients: FloatArray, counts: FloatArray, design: FloatArray, questions: Levels
) -> FloatArray:
    """Return coefficients after steps that raise the likelihood of counts, answers x nodes."""
    totals = questions.sum_by_column(counts)
    bound = np.einsum("jq,qa,qb->jab", totals, design, design) / 2
    inverses = np.linalg.inv(bound)[questions.owners]
    for _ in range(_N_STEPS):
        left = counts - totals[questions.owners] * _softmax(coefficients @ design.T, questions)
        coefficients = coefficients + np.einsum("rab,rb->ra", inverses, left @ design)
    return coefficients


def _softmax(log_odds: FloatArray, questions: Levels) -> FloatArray:
    """Return the probabilities of the answers to each question, along the first axis."""
    largest = np.maximum.reduceat(log_odds, questions.offsets, axis=0)[questions.owners]
    odds = np.exp(log_odds - largest)
    return np.asarray(odds / questions.sum_by_column(odds)[questions.owners])


def _leading_scores(given: FloatArray) -> FloatArray:
    """Return the place of each respondent along the leading direction of the covariance of the
    answers.
    """
    centred = given - given.mean(axis=0)
    return np.asarray(centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1])

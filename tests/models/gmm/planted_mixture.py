"""Planted mixtures: what tests compare with."""

from __future__ import annotations

import numpy as np

from odeco.models.emissions.gaussians import Gaussians


def planted(n_components, n_features, separation, seed=0):
    """Return spheres of variance one, whose means are so far apart on average, with weights that
    differ.
    """
    rng = np.random.default_rng(seed)
    means = separation / np.sqrt(2 * n_features) * rng.standard_normal((n_components, n_features))
    weights = rng.dirichlet(np.full(n_components, 20.0))
    return Gaussians(weights, means, np.ones(n_components))


def drawn(truth, n_rows, seed=1):
    """Return rows of a mixture in random order, and the component of each."""
    rng = np.random.default_rng(1000 + seed)
    rows, labels = truth.draw(n_rows, rng)
    order = rng.permutation(n_rows)
    return rows[order], labels[order]


def largest_gap(n_parameters, n_rows, n_judged):
    """Return how far the likelihood of new rows may be below that of the truth.

    2n times the gap of the likeliest parameters is a χ² variable of p degrees of freedom, for many
    rows; five deviations above its mean are allowed. The gap is measured on m rows: log-ratios of
    two near densities have a variance of twice their mean.
    """
    gap = (n_parameters + 5 * np.sqrt(2 * n_parameters)) / (2 * n_rows)
    return gap + 5 * np.sqrt(2 * gap / n_judged)

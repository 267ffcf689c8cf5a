"""Whether rows are what independent component analysis takes them for: mixtures of sources that are
not Gaussian.

**Gaussian directions** can be rotated into each other without a trace, so no method finds them;
noise is of that kind. A direction that was chosen to look non-Gaussian does so a little in the rows
that it was chosen by. On held-out rows there is a fair test: with y standardised, the means of y
e^(−y²/2) and of e^(−y²/2), minus their projections on 1, y and y², are asymptotically independent
Gaussians if y is Gaussian. Both functions are bounded, so this holds for few rows as well.

**Dependent sources.** Any rows have directions that are as independent as possible; only those of a
mixture are independent. Let f be e^(−y²/2) or y e^(−y²/2) of one source, and g either of another
one, both with mean zero. The sum of f g over independent rows has the variance n E f² E g². But f
and g are those of estimates, into which a little of the other source has leaked: with y₁ + ε y₂ for
y₁, the expectation of f g changes by ε E f' E[y₂ g], which is as large as chance. So tanh y is
subtracted from each function, as often as it takes for E[y f] = E[y g] = 0; then f g does not
change to first order, whatever the leaks. Of a source with two values little is left of f, and most
of that has leaked: directions in which f varies little are left out. The variance is taken as at
least the sum of (f g)², as the functions of sources with rare values have heavy tails. The level is
0.1 % for all pairs together.

**Series.** Slow signals are alike by chance: neighbouring rows are no independent draws. For
independent signals, each of them stationary, all shifts of one against the other are as likely. So
the variance must also not be smaller than the mean square of the sum of f g over all circular
shifts, or the order of rows may explain what was found.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from odeco._util.types import FloatArray, IndexArray

#: What may be found that the model rules out: dependent sources, and those that are not if rows are
#: a series.
_DEPENDENT = (
    "{n} of the sources depend on others: the rows may be no mixture of {k} independent sources."
)
_SERIES = (
    "{n} of the sources look dependent, which slow signals do by chance, and which is harmless in "
    "recordings."
)

#: The probability that any Gaussian source is taken for non-Gaussian is at most this.
_SIGNIFICANCE = 0.01

#: Variances of the two functions minus their projections on 1, y and y²: E[y²e^(−y²)] − 1/8,
#: E[e^(−y²)] − 1/2 − 1/16.
_ODD_VARIANCE = 1 / (3 * math.sqrt(3)) - 1 / 8
_EVEN_VARIANCE = 1 / math.sqrt(3) - 1 / 2 - 1 / 16

#: Standard deviations of the two functions themselves if y is Gaussian.
_ODD_DEVIATION = math.sqrt(1 / (3 * math.sqrt(3)))
_EVEN_DEVIATION = math.sqrt(1 / math.sqrt(3) - 1 / 2)

#: The chance of dependence where there is none.
_LEVEL = 1e-3

#: Functions of a source are used if they vary by at least this share of what those of a Gaussian
#: do.
_LEAST_DEVIATION = 0.3

#: At most this many numbers of rows are tested, the first ones.
_MAX_NUMBERS = 2**22


def gaussianity_p_values(sources: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the p-value of each source (k x n) under the hypothesis that it is Gaussian."""

    def mean(values: FloatArray) -> FloatArray:
        return np.average(values, axis=1, weights=weights)

    centred = sources - mean(sources)[:, None]
    deviation = np.sqrt(mean(np.square(centred - mean(centred)[:, None])))[:, None]
    y = centred / np.where(deviation > 0, deviation, 1.0)
    bell = np.exp(-y * y / 2)
    # After standardising, the projections on y and y² have mean zero, so only the constant is
    # subtracted.
    odd = mean(y * bell)
    even = mean(bell) - 1 / math.sqrt(2)
    n_rows = sources.shape[1] if weights is None else weights.sum()
    return np.asarray(np.exp(-n_rows * (odd**2 / _ODD_VARIANCE + even**2 / _EVEN_VARIANCE) / 2))


def count_non_gaussian(sources: FloatArray, weights: FloatArray | None = None) -> int:
    """Return the number of sources (k x n, held out) that are significantly non-Gaussian (Holm
    1979).
    """
    p_values = np.sort(gaussianity_p_values(sources, weights))
    clear = p_values <= _SIGNIFICANCE / np.arange(len(p_values), 0, -1)
    if not clear.all():
        return int(np.argmin(clear))
    return len(p_values)


def caution_of(sources: FloatArray) -> tuple[str, IndexArray]:
    """Return what sources (k x n) show that the model rules out, and for each the one that it
    depends on most, or −1.

    The text is empty if no two of them depend on each other.
    """
    k = len(sources)
    n = min(sources.shape[1], max(_MAX_NUMBERS // max(len(sources), 1), 1))
    if k < 2:
        return "", np.full(k, -1)
    functions = np.vstack([_functions(source[:n]) for source in sources])
    sums = np.abs(functions @ functions.T)
    squares = functions**2
    variances = np.maximum(squares @ squares.T, n)
    spectra = np.abs(np.fft.rfft(functions, axis=1)) ** 2
    spectra[:, 1 : (n + 1) // 2] *= math.sqrt(2)  # each of these frequencies stands for two
    limit = -ndtri(_LEVEL / (4 * k * (k - 1)))  # four products for each pair, and both signs
    shifted = np.maximum(variances, spectra @ spectra.T / n**2)
    for sentence, variance in ((_DEPENDENT, shifted), (_SERIES, variances)):
        scores = (sums / np.sqrt(variance)).reshape(k, 2, k, 2).max(axis=(1, 3))
        np.fill_diagonal(scores, 0.0)
        if scores.max() > limit:
            partners = np.where(scores.max(axis=1) > limit, scores.argmax(axis=1), -1)
            return sentence.format(n=int(np.sum(partners >= 0)), k=k), partners
    return "", np.full(k, -1)


def _functions(source: FloatArray) -> FloatArray:
    """Return two functions of a source (2 x n), orthogonal to each other, to 1 and to the source;
    zero if left out.
    """
    centred = source - source.mean()
    y = centred / (centred.std() or 1.0)
    bell = np.exp(-y * y / 2)
    odd = np.tanh(y)
    values = np.stack([bell / _EVEN_DEVIATION, y * bell / _ODD_DEVIATION, odd])
    values -= values.mean(axis=1, keepdims=True)
    along = values @ y
    left = values[:2] - np.outer(along[:2] / (along[2] or 1.0), values[2])
    _, deviations, directions = np.linalg.svd(left / math.sqrt(len(y)), full_matrices=False)
    return np.asarray(directions * (math.sqrt(len(y)) * (deviations >= _LEAST_DEVIATION))[:, None])

"""Which words tell a topic from the others: lift and relevance.

The lift of a word in a topic is its probability there over its probability in all text. Words of high lift are the
topic's own, but may be rare. Relevance mixes the logarithms of both: λ log p(word | topic) + (1 − λ) log lift.

References
----------
Sievert and Shirley, *LDAvis: a method for visualizing and interpreting topics*, 2014.
"""

from __future__ import annotations

import numbers

import numpy as np

from odeco._types import FloatArray


def lift(topic_word: FloatArray, shares: FloatArray) -> FloatArray:
    """Return p(word | topic) / p(word), k x V; 0 for a word that no topic holds.

    Examples
    --------
    >>> lift(np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]), np.array([0.75, 0.25]))
    array([[1.        , 1.33333333, 0.        ],
           [1.        , 0.        , 4.        ]])
    """
    frequencies = shares @ topic_word
    return np.divide(topic_word, frequencies, out=np.zeros_like(topic_word), where=frequencies > 0)


def relevance(topic_word: FloatArray, shares: FloatArray, weight: float) -> FloatArray:
    """Return λ log p(word | topic) + (1 − λ) log lift, k x V, for λ = `weight`; −∞ for a word that a topic lacks."""
    if not isinstance(weight, numbers.Real) or isinstance(weight, bool) or not 0 <= weight <= 1:
        raise ValueError(f"The weight of relevance must be a number from 0 (lift) to 1 (probability). Got {weight!r}.")
    with np.errstate(divide="ignore"):
        # log lift is log p(word | topic) − log p(word), so the first of both has the weight 1 in the sum.
        logarithms = np.log(topic_word)
        own = (1 - weight) * np.log(shares @ topic_word)
    return np.subtract(logarithms, own, out=logarithms, where=np.isfinite(logarithms))

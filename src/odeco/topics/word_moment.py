"""The third moment of latent Dirichlet allocation as an oracle, for those who want to decompose it themselves."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from odeco._types import FloatArray
from odeco.oracle import Oracle
from odeco.topics.counts import DocumentWeight, as_counts, count_chunks, multiply
from odeco.topics.moments import WordSums, check_usable, correction_factors


@final
class WordMoment(Oracle):
    """The third moment of latent Dirichlet allocation, corrected so that its components are the topics.

    With concentration α₀ and mean m = E[x], it is

        E[x₁⊗x₂⊗x₃] − α₀/(α₀+2) (E[x₁⊗x₂⊗m] + E[x₁⊗m⊗x₂] + E[m⊗x₁⊗x₂]) + 2α₀²/((α₀+1)(α₀+2)) m⊗m⊗m,

    which for documents of the model is Σ 2αⱼ/(α₀(α₀+1)(α₀+2)) μⱼ⊗μⱼ⊗μⱼ over topics μⱼ. An image takes four products
    with the counts; nothing larger than V x L is formed.

    Parameters
    ----------
    counts : array or CSR array, documents x words
        Word counts; documents with fewer than three words add nothing.
    concentration : float
        α₀, the sum of the Dirichlet parameters; it is 0 if every document has one topic.
    weigh : {"equal", "length"}
        Whether a document counts once, or as often as it has words.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable models*, 2014,
    arXiv:1210.7559, theorem 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.moments import WordMoment
    >>> moment = WordMoment([[3, 0], [0, 4]], concentration=0.0)     # two documents, each of a topic with one word
    >>> moment.image(np.eye(2))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    order = 3

    def __init__(self, counts: Any, concentration: float = 1.0, *, weigh: DocumentWeight = "equal") -> None:
        checked = as_counts(counts)
        self.dimension = int(checked.shape[1])
        self.concentration = concentration
        self._chunks = tuple(count_chunks(checked, weigh=weigh))
        sums = WordSums(self.dimension)
        sums.add(self._chunks)
        check_usable(sums)
        self._mean, self._weight = sums.first_moment(), sums.weight

    def _image(self, block: FloatArray) -> FloatArray:
        pairs, triples = np.zeros(block.shape), np.zeros(block.shape)
        for chunk in self._chunks:
            local = block[chunk.words]
            inside = multiply(chunk.rows, block, parallel=True)
            squares = inside**2 - multiply(chunk.rows, block**2, parallel=True)
            image = multiply(chunk.columns, chunk.pair[:, None] * inside, parallel=True)
            pairs[chunk.words] += image - (chunk.columns @ chunk.pair)[:, None] * local
            image = multiply(chunk.columns, chunk.triple[:, None] * squares, parallel=True)
            image -= 2 * local * multiply(chunk.columns, chunk.triple[:, None] * inside, parallel=True)
            image += 2 * (chunk.columns @ chunk.triple)[:, None] * local**2
            triples[chunk.words] += image
        pairs /= self._weight
        triples /= self._weight
        mixed, pure = correction_factors(self.concentration)
        overlaps = self._mean @ block
        values = np.einsum("vl,vl->l", block, pairs)
        triples -= mixed * (2 * overlaps * pairs + self._mean[:, None] * values)
        triples += pure * self._mean[:, None] * overlaps**2
        return triples

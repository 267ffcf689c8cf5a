"""Split-half replication: which components random halves of the rows show again.

A component that only some half-samples show is noise, or needs more rows. This needs no model of
the noise. Halves are disjoint, so they share no rows that could make them agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.arguments import as_generator, as_seed, check_count
from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray, RngLike
from odeco.decompose.result import StreamDecomposition
from odeco.errors import RankError
from odeco.io.coerce import as_source
from odeco.io.source import BatchSource, Block
from odeco.online.stream import decompose_stream

#: Vectors with at least this cosine are alike (Lorenzo-Seva and ten Berge 2006).
ALIKE = 0.85


@dataclass(frozen=True, eq=False)
class SplitHalf(State):
    """How often the components of a result were found again in random halves of its data.

    Attributes
    ----------
    found_again : array of int, k
        In how many half-samples each component has a counterpart.
    n_halves : int
        Number of half-samples: disjoint halves in pairs.
    agreement : float
        How well two halves of a pair agree, on average: 1 if they are equal. For models that assign
        records it is the adjusted Rand index, which is 0 by chance; for vectors the mean cosine of
        matched components.
    """

    found_again: IndexArray = array_field(None, kind="i", low=0)
    n_halves: int = array_field(kind="i", low=2)
    agreement: float = array_field(high=1 + 1e-9)

    @property
    def is_established(self) -> Any:
        """Whether each component was found again in more than half of the half-samples."""
        return self.found_again > self.n_halves / 2

    def describe(self, name: str = "component", plural: str = "components") -> str:
        """Return what was found in one sentence, which begins with the number of components."""
        k = len(self.found_again)
        in_every = self.found_again == self.n_halves
        if in_every.all():
            return (
                f"{k} {name if k == 1 else plural}, {'' if k == 1 else 'each '}found again in "
                "every half-sample."
            )
        n_most = int(np.sum(self.is_established & ~in_every))
        missing = np.flatnonzero(~self.is_established)
        parts = [f"{in_every.sum()} found again in every half-sample"]
        if n_most:
            parts.append(f"{n_most} in most")
        if missing.size:
            listed = ", ".join(map(str, missing[:5])) + (", …" if missing.size > 5 else "")
            parts.append(f"{missing.size} not established ({listed})")
        return f"{k} {name if k == 1 else plural}: {', '.join(parts)}."

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return self.describe()


def best_cosines(vectors: FloatArray, others: FloatArray) -> FloatArray:
    """Return for each column of `vectors` its cosine with the most similar column of `others`."""
    if not others.shape[1]:
        return np.zeros(vectors.shape[1])
    unit, other = (
        each / np.maximum(np.linalg.norm(each, axis=0), 1e-300) for each in (vectors, others)
    )
    return np.asarray((unit.T @ other).max(axis=1))


def split_half(
    data: Any,
    found: StreamDecomposition,
    *,
    n_pairs: int = 3,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    rng: RngLike = None,
    **settings: Any,
) -> SplitHalf:
    """Decompose random halves of the rows, and count in how many each component of a result is
    found again.

    Parameters
    ----------
    data : array, CSR array, path, directory, …
        The rows that were decomposed, which must be readable again; see `odeco.io.as_source`.
    found : StreamDecomposition
        What `decompose_stream` returned for all rows.
    n_pairs : int
        Number of random divisions into two halves; each half is decomposed.
    columns, drop : sequence of str, optional
        The names of the columns to read or to leave out.
    rng : None, int or numpy.random.Generator
        Draws the halves, and the starts of the decompositions.
    **settings : object
        The arguments of `decompose_stream` that gave the result: `method`, `order`, `n_passes`, ….

    Returns
    -------
    SplitHalf
        In how many half-samples each component is found again, and how well halves agree.

    Notes
    -----
    A component is found again if a component of the half has a cosine of at least 0.85 with it,
    which counts as fair similarity (Lorenzo-Seva and ten Berge 2006). Of every two consecutive
    rows, one goes to each half. If consecutive rows depend on each other, so do the halves, and
    they agree better than independent samples would: shuffle such rows in blocks first.

    References
    ----------
    Lorenzo-Seva and ten Berge, *Tucker's congruence coefficient as a meaningful index of factor
    similarity*, Methodology 2, 2006.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> rows = np.eye(5)[np.random.default_rng(0).choice(2, size=1000, p=[0.7, 0.3])]
    >>> odeco.split_half(rows, odeco.decompose_stream(rows, 2, rng=0), rng=0).verdict
    '2 components, each found again in every half-sample.'
    """
    source = as_source(data, columns=columns, drop=drop)
    if not source.repeatable:
        raise ValueError(
            "The rows must be readable again, because each half is read by itself. Got a stream "
            "that can be read once. Pass an array, a file or a callable that returns a fresh "
            "iterator."
        )
    generator = as_generator(rng)
    vectors = found.vectors
    k = vectors.shape[1]
    counts = np.zeros(k, np.int64)
    agreements = []
    for _ in range(check_count("n_pairs", n_pairs)):
        seed = as_seed(generator)
        halves = [
            _vectors_of(Half(source, seed, in_first=in_first), k, generator, settings)
            for in_first in (True, False)
        ]
        for half in halves:
            counts += best_cosines(vectors, half) >= ALIKE
        agreements.append(float(best_cosines(*halves).mean()) if halves[0].shape[1] else 0.0)
    return SplitHalf(counts, 2 * n_pairs, float(np.mean(agreements)))


def _vectors_of(
    half: Half, k: int, generator: np.random.Generator, settings: dict[str, Any]
) -> FloatArray:
    """Return the vectors of k components of half of the rows; none if it shows fewer."""
    try:
        return decompose_stream(half, k, rng=generator, **settings).vectors
    except RankError as error:
        return error.found.vectors


class Half:
    """One half of the rows of a source; of every two consecutive rows it has a random one."""

    def __init__(self, source: BatchSource, seed: int, *, in_first: bool) -> None:
        self.source = source
        self.seed = seed
        self.in_first = in_first
        self.n_features = source.n_features
        self.columns = getattr(source, "columns", None)
        self.repeatable = True

    def __iter__(self) -> Iterator[Block]:
        generator = np.random.default_rng(self.seed)
        # of each pair, whether its first row is in the first half
        first_is_first = np.empty(0, dtype=bool)
        start = 0
        for block in self.source:
            rows = np.arange(start, start + block.shape[0])
            known = (
                first_is_first[-1:] if start % 2 else first_is_first[:0]
            )  # a pair may begin in the last block
            n_new = (start + block.shape[0] + 1) // 2 - start // 2 - known.size
            first_is_first = np.concatenate([known, generator.random(n_new) < 0.5])
            in_first = first_is_first[rows // 2 - start // 2] ^ (rows % 2 == 1)
            start += block.shape[0]
            mine: Block = block[in_first == self.in_first]
            yield mine

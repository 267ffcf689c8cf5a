"""Split-half analysis: decompose two random halves of the rows, and see which components both of them have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import as_generator, as_seed
from odeco._util.types import RngLike
from odeco.decompose.result import StreamDecomposition
from odeco.io.coerce import as_source
from odeco.io.source import BatchSource, Block
from odeco.online.stream import decompose_stream
from odeco.tensors.components import Match, match

#: Vectors with at least this cosine count as equal (Lorenzo-Seva and ten Berge 2006).
_EQUAL = 0.95


@dataclass(frozen=True, eq=False)
class SplitHalf:
    """How far the decompositions of two halves of the rows agree.

    Attributes
    ----------
    first, second : StreamDecomposition
        The components of each half. Their errors are √2 times those of all rows.
    match : Match
        For each component of the first half, the one of the second: its index, cosine and difference of weights.
    """

    first: StreamDecomposition
    second: StreamDecomposition
    match: Match

    @property
    def factor_match_score(self) -> float:
        """The factor match score of the halves; 1 if they agree in everything."""
        return self.match.factor_match_score

    @property
    def verdict(self) -> str:
        """How many components were found in both halves, in one sentence."""
        n_equal, found = int(np.sum(self.match.cosines >= _EQUAL)), (len(self.first.weights), len(self.second.weights))
        count = f"{max(found)} component{'' if max(found) == 1 else 's'}"
        return (
            f"{n_equal} of {count} found in both halves (cosine of at least {_EQUAL}); "
            f"factor match score {self.factor_match_score:.3f}"
        )


def split_half(
    data: Any,
    n_components: int | Literal["auto"],
    *,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    rng: RngLike = None,
    **settings: Any,
) -> SplitHalf:
    """Decompose two random halves of the rows with `decompose_stream`, and match their components.

    What only one of the halves shows is noise, or needs more rows. This needs no model of the noise, and compares the
    number of components too: with ``"auto"`` each half selects its own.

    Parameters
    ----------
    data : array, CSR array, path, directory, …
        The rows, which must be readable again; see `odeco.io.as_source`.
    n_components : int or "auto"
        The number of components, as for `decompose_stream`.
    columns, drop : sequence of str, optional
        The names of the columns to read or to leave out.
    rng : None, int or numpy.random.Generator
        Draws the halves, and the starts of both decompositions.
    **settings : object
        Further arguments of `decompose_stream`: `method`, `order`, `n_passes`, ….

    Returns
    -------
    SplitHalf
        Both results, the match of their components, and the factor match score.

    Notes
    -----
    Of every two consecutive rows, one goes to each half. If consecutive rows depend on each other, so do the halves,
    and they agree better than independent samples would: shuffle such rows in blocks first.

    References
    ----------
    Lorenzo-Seva and ten Berge, *Tucker's congruence coefficient as a meaningful index of factor similarity*,
    Methodology 2, 2006: a cosine of 0.95 and above means that two factors can be considered equal.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> rows = np.eye(5)[np.random.default_rng(0).choice(2, size=1000, p=[0.7, 0.3])]
    >>> odeco.split_half(rows, 2, rng=0).verdict
    '2 of 2 components found in both halves (cosine of at least 0.95); factor match score 0.921'
    """
    source, generator = as_source(data, columns=columns, drop=drop), as_generator(rng)
    if not source.repeatable:
        raise ValueError(
            "The rows must be readable again, because each half is read by itself. Got a stream that can be read once. "
            "Pass an array, a file or a callable that returns a fresh iterator."
        )
    seed = as_seed(generator)
    first, second = (
        decompose_stream(Half(source, seed, in_first=in_first), n_components, rng=generator, **settings)
        for in_first in (True, False)
    )
    return SplitHalf(first, second, match(second, first))


class Half:
    """One half of the rows of a source; of every two consecutive rows it has a random one."""

    def __init__(self, source: BatchSource, seed: int, *, in_first: bool) -> None:
        self.source, self.seed, self.in_first = source, seed, in_first
        self.n_features, self.columns = source.n_features, getattr(source, "columns", None)
        self.repeatable = True

    def __iter__(self) -> Iterator[Block]:
        generator = np.random.default_rng(self.seed)
        first_is_first, start = np.empty(0, dtype=bool), 0  # of each pair, whether its first row is in the first half
        for block in self.source:
            rows = np.arange(start, start + block.shape[0])
            known = first_is_first[-1:] if start % 2 else first_is_first[:0]  # a pair may begin in the last block
            n_new = (start + block.shape[0] + 1) // 2 - start // 2 - known.size
            first_is_first = np.concatenate([known, generator.random(n_new) < 0.5])
            in_first = first_is_first[rows // 2 - start // 2] ^ (rows % 2 == 1)
            start += block.shape[0]
            mine: Block = block[in_first == self.in_first]
            yield mine

"""Holders of private documents: word counts, and votes for words. No document, or no user, adds
more than 1 to a sum.

**Word counts** (`BoundedCounts`). The features of a document are the square roots of its counts.
Every query is a sum over units (documents, or users with all of their documents) of an array
without negative entries that is computed from one unit's features and from public numbers, and has
Euclidean norm 1 or is 0. One bound therefore holds for every query, and a document does not weigh
more by being long.

**Votes** (`WordVotes`). Every unit divides one vote among its distinct words: each of s words gets
1/√s, so that the contribution of a unit has Euclidean norm 1 (Gopi et al., *Differentially private
set union*, 2020).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from odeco._util.arguments import check_choice, check_count
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import check_private_structure, join_rows
from odeco.privacy.holders.lanes import ROWS_AT_ONCE, RemoteRows, Span, n_lanes
from odeco.privacy.holders.protocol import RELATIONS, NeighbourRelation, units_of
from odeco.privacy.noise import grid_of
from odeco.privacy.sensitivity import neighbour_factor
from odeco.privacy.sums import Query

#: The bins of the histogram of lengths begin here: from 1 to 4,096 words, about three to an octave.
LENGTH_EDGES: IndexArray = np.unique(np.round(np.geomspace(1, 4096, 37)).astype(np.int64))


#: Rounds in which the shares of topics in a document are found.
N_ROUNDS = 30


#: A document with more words than this counts as empty, because sums of its powers would not be
#: exact.
_MOST_WORDS = 2.0**40


class Units(NamedTuple):
    """The documents of all units as flat arrays; those of a unit lie together.

    Attributes
    ----------
    documents : array
        The first document of each unit, and the number of documents.
    entries : array
        The first entry of each document, and the number of entries.
    words, counts : arrays
        The word and the count of each entry.
    slots : array
        The number of the word of each entry among the different words of its unit.
    first_slots, slot_words : arrays
        The first slot of each unit, and their number; the word of each slot.
    """

    documents: IndexArray
    entries: IndexArray
    words: IndexArray
    counts: FloatArray
    slots: IndexArray
    first_slots: IndexArray
    slot_words: IndexArray


class BoundedCounts:
    """Queries of sums over n documents, or users, to each of which none adds an array of norm above
    1.

    Parameters
    ----------
    counts : array or CSR array, documents x words, or RemoteRows
        Word counts. A document with a count that is negative, not whole or not finite counts as
        empty, without a message. Those of a cluster are read and added up by its workers for every
        query; the sums are bit-identical (`odeco.privacy.holders.lanes`).
    groups : array of labels, optional
        The user of each document; public. The unit of privacy is then the user.
    neighbour_relation : {"replace", "add_remove"}
        What a neighbour may do to one document (or to all of one user): replace it by any other, or
        blank it. The number of documents is public either way.

    Notes
    -----
    **Bound.** A unit adds an array u without negative entries and of norm 1, or 0, to a sum. u is a
    function of the unit's own documents and of the arguments of the query, which are public or were
    released before. So the bound of every query is 1, and ⟨u, v⟩ ≥ 0 for any two units. Documents
    of a user are first added up, and the sum, which has no negative entry, is divided by its norm:
    a user adds no more than a document does. The sensitivities that follow, 1 if a unit is blanked
    and √2 if it is replaced, with the rounding errors, are in `odeco.privacy.sums.PrivateSums`.

    **Users on a cluster.** The norm of a user's sum must be that of all documents of the user.
    Their files may be on several workers, so lanes are spans of *users*: a task gets the numbers of
    all documents of its users, which follow from the labels, reads them wherever they are, adds up
    those of each user in their order and divides by the norm. No user is in two lanes, and all else
    is as on one machine, so the bound is 1 over all workers. A query reads every file once for each
    lane that has a user in it: once in all if files are sorted by user.
    """

    def __init__(
        self, counts: Any, *, groups: Any = None, neighbour_relation: NeighbourRelation = "replace"
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
        self.neighbour_relation = neighbour_relation
        self._remote = counts if isinstance(counts, RemoteRows) else None
        self.of_users = groups is not None
        clean = None if self._remote is not None else _blank_invalid(counts)
        self.n_documents, self.n_words = (
            int(size) for size in (counts if clean is None else clean).shape
        )
        units, self.n_records = units_of(groups, self.n_documents)
        self.n_terms = self.n_documents
        self._owners = units if self.of_users else None
        self._units = None if clean is None else _units_in(clean, self._owners)

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = RELATIONS[self.neighbour_relation]
        if self.of_users:
            whom = "all documents of one user"
            public = "whose each is"
        else:
            whom = "one document"
            public = "their number"
        return f"{whom}, {act}; {public} and the vocabulary are public"

    @property
    def unit(self) -> str:
        """Whom the guarantee protects: a document, or a user."""
        if self.of_users:
            return "user"
        return "document"

    def lengths(self) -> Query:
        """Return the query of the histogram of lengths with the bins `LENGTH_EDGES`; empty
        documents are in none.
        """
        return _bounded(
            f"lengths of documents, {LENGTH_EDGES.size} bins", self._lengths, LENGTH_EDGES.size
        )

    def words(self) -> Query:
        """Return the query of the sum of the features, V numbers: those of a unit have norm 1."""
        alone = np.ones((self.n_words, 1), dtype=np.float32)
        ones = np.ones(self.n_words)
        what = f"frequencies of {self.n_words} words"
        return _bounded(
            what, lambda: self._responsibilities(alone, ones, 1.0, 0)[:, 0], self.n_words
        )

    def pairs(self, words: IndexArray) -> Query:
        """Return the query of the products of the features of two of these words in one
        document.
        """
        size = math.comb(words.size, 2)
        what = f"pairs of the {words.size} most frequent words, {size} numbers"
        return _bounded(what, lambda: self._pairs(words), size)

    def responsibilities(self, topics: FloatArray, scales: FloatArray, smoothing: float) -> Query:
        """Return the query of the scaled features by topic, divided according to the other words of
        the document.

        Parameters
        ----------
        topics : array, k x V
            The probability of every word in every topic, all of them positive; public.
        scales : array
            The factor of the feature of each word; public.
        smoothing : float
            A document has this many words of every topic beside its own.

        Returns
        -------
        Query
            Of V x k numbers.
        """
        k, n_words = topics.shape
        what = (
            f"EM step: words by topic, given the other words of a document, {n_words} x {k} numbers"
        )
        return _bounded(
            what, lambda: self._responsibilities(topics.T, scales, smoothing, N_ROUNDS), topics.size
        )

    def _lengths(self) -> FloatArray:
        return self._in_lanes(_add_lengths, (LENGTH_EDGES.size,))

    def _pairs(self, words: IndexArray) -> FloatArray:
        places = np.full(self.n_words, -1)
        places[words] = np.arange(words.size)
        matrix = self._in_lanes(_add_pairs, (words.size, words.size), places)
        return matrix[np.triu_indices(words.size, 1)]

    def _responsibilities(
        self, topics: Any, scales: FloatArray, smoothing: float, n_rounds: int
    ) -> FloatArray:
        table = np.ascontiguousarray(topics, dtype=np.float32)
        small = np.float32(smoothing)
        return self._in_lanes(_add_responsibilities, table.shape, table, scales, small, n_rounds)

    def _in_lanes(
        self, add: Callable[..., None], shape: tuple[int, ...], *arguments: Any
    ) -> FloatArray:
        """Return the sum over lanes of units, each of which `add` fills in; they are added in their
        order.
        """
        spans = _spans(self.n_records, math.prod(shape))
        units = self._units
        if self._remote is not None:
            lane = _DocumentLane(None, add, shape, arguments)
            return sum(
                _sums_elsewhere(self._remote, lane, spans, self._owners), start=np.zeros(shape)
            )
        sums = map_blocks(
            lambda span: _filled(add, shape, arguments, *span, units), spans, parallel=True
        )
        return sum(sums, start=np.zeros(shape))


def _spans(n_units: int, size: int) -> list[Span]:
    """Return the lanes of a sum of `size` numbers: spans of units."""
    number = n_lanes(n_units, size)
    borders = [round(lane * n_units / number) for lane in range(number + 1)]
    return [span for span in pairwise(borders) if span[0] < span[1]]


def _sums_elsewhere(
    rows: RemoteRows, lane: _UnitLane, spans: Sequence[Span], owners: IndexArray | None
) -> Iterator[FloatArray]:
    """Yield the sums over spans of documents or, if they have owners, of users with all of their
    documents.
    """
    if owners is None:
        return rows.add_lanes(lane, spans, ROWS_AT_ONCE)
    chosen = np.argsort(owners, kind="stable")
    edges = np.searchsorted(owners[chosen], [spans[0][0], *(stop for _, stop in spans)])
    for start, stop in pairwise(edges):
        chosen[start:stop].sort()  # documents are read in the order in which they are stored
    return rows.add_lanes(
        replace(lane, owners=owners[chosen]), [*pairwise(edges.tolist())], ROWS_AT_ONCE, chosen
    )


@dataclass(frozen=True)
class _UnitLane:
    """The sum over a lane of units: all that a worker must know about it, besides the documents.

    Attributes
    ----------
    owners : array or None
        The number of the user of each document of all lanes, which follow each other; None if a
        document is a unit.
    """

    owners: IndexArray | None

    def __call__(self, first: int, chunks: Iterator[Any]) -> FloatArray:
        """Return the sum over the units of a lane, whose first document has this number."""
        counts = join_rows([*chunks])
        owners = None
        if self.owners is not None:
            owners = self.owners[first : first + counts.shape[0]]
            owners = owners - owners.min()  # the users of a lane have consecutive numbers
        return self.add_up(counts, owners)

    def add_up(self, counts: Any, owners: IndexArray | None) -> FloatArray:
        """Return the sum over all units of some documents."""
        raise NotImplementedError


@dataclass(frozen=True)
class _DocumentLane(_UnitLane):
    """A lane of a sum over word counts."""

    add: Callable[..., None]
    shape: tuple[int, ...]
    arguments: tuple[Any, ...]

    def add_up(self, counts: Any, owners: IndexArray | None) -> FloatArray:
        """Return the sum over all units of some documents."""
        units = _units_in(_blank_invalid(counts), owners)
        return _filled(self.add, self.shape, self.arguments, 0, units.documents.size - 1, units)


def _filled(
    add: Callable[..., None],
    shape: tuple[int, ...],
    arguments: tuple[Any, ...],
    first: int,
    last: int,
    units: Any,
) -> FloatArray:
    """Return what `add` adds up over some units."""
    total = np.zeros(shape)
    add(first, last, units, *arguments, total)
    return total


def _add_lengths(first: int, last: int, units: Units, total: FloatArray) -> None:
    """Add the histogram of the lengths of documents; where each is a unit it is made of ones, and
    exact.
    """
    documents = units.documents[first : last + 1]
    entries = units.entries[documents[0] : documents[-1] + 1]
    n_units = last - first
    own = np.append(units.counts[entries[0] : entries[-1]], 0.0)
    sizes = np.add.reduceat(own, entries[:-1] - entries[0])
    used = np.diff(entries) > 0
    bins = np.searchsorted(LENGTH_EDGES, sizes[used], side="right") - 1
    unit = np.repeat(np.arange(n_units), np.diff(documents))[used]
    keys, repeated = np.unique(unit * LENGTH_EDGES.size + bins, return_counts=True)
    unit, bins = np.divmod(keys, LENGTH_EDGES.size)
    norms = np.sqrt(np.bincount(unit, repeated.astype(np.float64) ** 2, n_units))
    np.add.at(total, bins, repeated / norms[unit])


def _add_pairs(*arguments: Any) -> None:
    from odeco.privacy.holders.document_kernels import add_pairs  # Numba takes a second

    add_pairs(*arguments)


def _add_responsibilities(*arguments: Any) -> None:
    from odeco.privacy.holders.document_kernels import add_responsibilities  # Numba takes a second

    add_responsibilities(*arguments)


def _units_in(clean: Any, units: IndexArray | None) -> Units:
    """Put the documents of each unit next to each other, and number the different words of each
    unit.
    """
    if units is None:  # each document is one
        entries = clean.indptr.astype(np.int64)
        words = clean.indices
        slots = np.arange(words.size) - np.repeat(entries[:-1], np.diff(entries))
        return Units(
            np.arange(clean.shape[0] + 1), entries, words, clean.data, slots, entries, words
        )
    clean, n_words = clean[np.argsort(units, kind="stable")], clean.shape[1]
    documents = np.append(0, np.cumsum(np.bincount(units)))
    entries = clean.indptr.astype(np.int64)
    words = clean.indices
    n_units = documents.size - 1
    owner = np.repeat(np.arange(n_units), np.diff(entries[documents]))
    keys, position = np.unique(owner * n_words + words, return_inverse=True)
    first_slots = np.searchsorted(keys, np.arange(n_units + 1) * n_words)
    slots = position - first_slots[owner]
    return Units(documents, entries, words, clean.data, slots, first_slots, keys % n_words)


def _bounded(what: str, answer: Callable[[], FloatArray], size: int) -> Query:
    return Query(what, answer, size, bound=1.0, signed=False)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _blank_invalid(counts: Any) -> Any:
    """Return counts as a CSR array of float64, in which documents that cannot be counted are
    empty.
    """
    is_array = isinstance(counts, np.ndarray) or bool(sparse.issparse(counts))
    if not is_array or counts.ndim != 2 or counts.shape[1] == 0:
        raise TypeError(
            "Private counts must be a NumPy array or a CSR array, documents x words. Got "
            f"{type(counts).__name__}. Convert them."
        )
    if counts.dtype.kind not in "iubf":
        raise TypeError(
            f"Word counts must be numbers. Got {counts.dtype}. Count words with a vectoriser first."
        )
    clean: Any = sparse.csr_array(counts, copy=True).astype(np.float64)
    clean.sum_duplicates()
    owner = np.repeat(np.arange(clean.shape[0]), np.diff(clean.indptr))
    whole = np.isfinite(clean.data) & (clean.data >= 0) & (clean.data == np.floor(clean.data))
    bad = np.bincount(owner, ~whole, minlength=clean.shape[0]) > 0
    lengths = np.bincount(owner, np.where(whole, clean.data, 0.0), minlength=clean.shape[0])
    bad |= ~(lengths <= _MOST_WORDS)
    clean.data[bad[owner]] = 0.0
    clean.eliminate_zeros()
    return clean


#: WordVotes are whole multiples of this or of the grid of the noise: sums of fewer than 2³³ of them
#: are exact.
_SMALLEST_VOTE = 2.0**-20


#: This much is added to quantiles of the normal distribution, whose relative errors are far
#: smaller.
_MARGIN = 1e-9


class WordVotes:
    """The votes of private documents for their words; see `choose_vocabulary_privately` for
    parameters and proof.

    Attributes
    ----------
    unit : {"document", "user"}
        Who votes.
    n_units : int
        How many of them there are; public.
    neighbours : str
        The neighbour relation in words.
    sensitivity : float
        Largest Euclidean change of the votes for the words that two neighbours share: 1 if a unit
        is blanked, √2 if it is replaced, as what it adds has norm at most 1 and no negative entry.
    """

    def __init__(
        self,
        counts: Any,
        words: NDArray[np.str_],
        *,
        groups: Any = None,
        words_per_unit: int = 1000,
        stop_words: Iterable[str] = (),
        neighbour_relation: NeighbourRelation = "replace",
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
        self._most = check_count("words_per_unit", words_per_unit)
        self._remote = counts if isinstance(counts, RemoteRows) else None
        if self._remote is None:
            check_private_structure(counts)
        units, self.n_units = units_of(groups, int(counts.shape[0]))
        self._owners = None if groups is None else units
        self.unit = "document" if groups is None else "user"
        replaced = neighbour_relation == "replace"
        self.sensitivity = neighbour_factor(replace=replaced, signed=False)
        if groups is None:
            whom = "one document"
            public = "their number"
        else:
            whom = "all documents of one user"
            public = "whose each is"
        self.neighbours = f"{whom}, {RELATIONS[neighbour_relation]}; public: {public}"
        self._words = words
        self._hashes = _hashes(words)
        self._usable = ~np.isin(np.char.lower(words), sorted(stop_words))
        if self._remote is not None:
            self._held = None
        else:
            self._held = _words_of_units(counts, self._usable, self._owners)

    def threshold(self, scale: float, delta: float) -> float:
        """Return what noisy votes must reach, so that words of one unit alone pass with probability
        at most `delta`.

        s words with 1/√s votes each all stay below T with probability Φ((T − 1/√s)/σ)ˢ, which is 1
        − δ' for T = 1/√s + σ Φ⁻¹((1 − δ')^(1/s)). The largest of these is taken. A unit that shares
        some of its words with others has fewer words alone, with no more votes.
        """
        n_words = np.arange(1, self._most + 1)
        tails = -np.expm1(math.log1p(-delta) / n_words)
        needed = 1 / np.sqrt(n_words) + scale * (1 + _MARGIN) * -ndtri(tails)
        return float(needed.max()) + 2 * _step(scale)

    def votes(self, scale: float) -> tuple[NDArray[np.str_], FloatArray]:
        """Return the words that have votes, and how many, in multiples of the grid of noise of this
        scale.

        On a cluster, lanes are those of `BoundedCounts`: all documents of a user are in one. Sums
        of votes are exact, so they do not depend on lanes.
        """
        lane = _VoteLane(None, self._usable, self._hashes, self._most, _step(scale))
        if self._remote is not None:
            spans = _spans(self.n_units, self._words.size)
            totals = sum(
                _sums_elsewhere(self._remote, lane, spans, self._owners),
                start=np.zeros(self._words.size),
            )
        else:
            totals = lane.totals(self._held)
        there = np.flatnonzero(totals > 0)
        return self._words[there], totals[there]


def _step(scale: float) -> float:
    return max(grid_of(scale), _SMALLEST_VOTE)


@dataclass(frozen=True)
class _VoteLane(_UnitLane):
    """A lane of votes, each a multiple of `step`; of every word, whether it is `usable`, and its
    hash.
    """

    usable: NDArray[np.bool_]
    hashes: NDArray[np.uint64]
    most: int
    step: float

    def add_up(self, counts: Any, owners: IndexArray | None) -> FloatArray:
        """Return the votes of all units of some documents."""
        return self.totals(_words_of_units(counts, self.usable, owners))

    def totals(self, held: Any) -> FloatArray:
        """Return the votes of units that hold these words."""
        held = _at_most(held, self.hashes, self.most)
        sizes = np.diff(held.indptr)
        each = np.floor(1 / np.sqrt(np.maximum(sizes, 1)) / self.step) * self.step
        return np.bincount(held.indices, np.repeat(each, sizes), held.shape[1]).astype(np.float64)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _words_of_units(counts: Any, usable: NDArray[np.bool_], units: IndexArray | None) -> Any:
    """Return which unit holds which word, as a CSR array of ones; a count must be a positive number
    to be one.
    """
    counts = sparse.csr_array(counts, copy=True)
    counts.sum_duplicates()
    counts.data = ((counts.data > 0) & usable[counts.indices]).astype(np.int64)
    counts.eliminate_zeros()
    if units is not None:
        joining = sparse.csr_array(
            (np.ones(units.size, dtype=np.int64), (units, np.arange(units.size)))
        )
        counts = sparse.csr_array(joining @ counts)
        counts.data = np.ones_like(counts.data)
    counts.sort_indices()
    return counts


def _at_most(held: Any, hashes: NDArray[np.uint64], most: int) -> Any:
    """Return the same with at most `most` words of each unit, chosen by hashes of its own words."""
    sizes = np.diff(held.indptr)
    long = np.flatnonzero(sizes > most)
    if long.size == 0:
        return held
    entries = np.flatnonzero(np.repeat(sizes > most, sizes))
    own = hashes[held.indices[entries]]
    starts = np.concatenate([[0], np.cumsum(sizes[long])[:-1]])
    keys = np.add.reduceat(own, starts)  # modulo 2⁶⁴
    unit = np.repeat(np.arange(long.size), sizes[long])
    order = np.lexsort((_mixed(own ^ keys[unit]), unit))
    rank = np.arange(entries.size) - starts[unit]  # the entries of a unit stay together
    kept = np.ones(held.indices.size, dtype=bool)
    kept[entries[order[rank >= most]]] = False
    ends = np.concatenate([[0], np.cumsum(np.minimum(sizes, most))])
    return sparse.csr_array((held.data[kept], held.indices[kept], ends), shape=held.shape)


def _hashes(words: NDArray[np.str_]) -> NDArray[np.uint64]:
    digests = (
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for word in words.tolist()
    )
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers in which every bit depends on all bits of the given ones (the finaliser of
    MurmurHash3).
    """
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))

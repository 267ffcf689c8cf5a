"""A blank record means the same everywhere: it adds nothing to any sum, as if it were not there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.gmm.start import span_of
from odeco.models.lca.classes import Classes
from odeco.privacy import RecordLevel
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.documents import BoundedCounts, WordVotes
from odeco.privacy.holders.protocol import RELATIONS
from odeco.privacy.holders.rows import BoundedRows
from odeco.privacy.holders.sequences import PrivateSequences
from odeco.privacy.holders.tables import Levels
from odeco.privacy.sums import PrivateSums

RNG = np.random.default_rng(0)
D = 4
MISSING = [np.full(D, np.nan), np.array([np.inf, 0, 0, 0]), np.array([1.0, np.nan, 2, 3])]
COUNTS = RNG.integers(0, 5, size=(6, D)).astype(float)
NO_DOCUMENT = [
    np.zeros(D),
    np.array([1.0, -1, 0, 0]),
    np.array([1.0, 0.5, 0, 0]),
    np.array([np.nan, 1, 1, 1]),
]
SPAN = span_of(SecondMoment(np.full(D, 0.1), np.diag([0.5, 0.3, 0.1, 0.1])), 2, 0.1)
MODEL = Gaussians(np.array([0.6, 0.4]), RNG.uniform(-0.5, 0.5, (2, D)), np.full(2, 0.05))
QUESTIONS = Levels(np.array([2, 3, 2]))
CODES = RNG.integers(0, 2, size=(6, 3))
CLASSES = Classes(
    np.array([0.5, 0.5]),
    np.concatenate([RNG.dirichlet(np.ones(size), 2).T for size in QUESTIONS.sizes]),
)
MAPS = tuple(RNG.standard_normal((QUESTIONS.n_levels, 2)) for _ in range(3))
BLOCK = np.linalg.qr(RNG.standard_normal((D, 2)))[0]
TOPICS = RNG.dirichlet(np.ones(D), 2)


def records(ask):
    """Return a sum over rows; the holder returns the mean, whose number of rows is public."""
    return lambda rows: len(rows) * np.asarray(ask(RecordLevel(np.array(rows), norm_bound=2.0)))


def mixture(ask):
    return lambda rows: ask(BoundedRows(np.array(rows), 2.0)).answer()


def responsibilities(rows):
    return MODEL.posterior(rows)[0]


def documents(ask):
    return lambda counts: ask(BoundedCounts(np.array(counts))).answer()


def votes(counts):
    held = WordVotes(
        sparse.csr_array(np.nan_to_num(np.array(counts), nan=-1.0)), np.array(list("abcd"))
    )
    names, numbers = held.votes(1.0)
    return np.array(
        [dict(zip(names.tolist(), numbers.tolist(), strict=True)).get(word, 0.0) for word in "abcd"]
    )


def answers(ask):
    return lambda codes: ask(HeldAnswers(QUESTIONS.indicators(np.array(codes)), QUESTIONS)).answer()


def triples(sequences):
    return PrivateSequences(
        np.concatenate(sequences), np.array([len(each) for each in sequences]), 3
    ).triples()


ROWS = list(RNG.standard_normal((6, D)))
SEQUENCES = [np.array(each, float) for each in ([0, 1, 2, 1], [2, 2, 2], [0, 1, 0, 1, 2])]
NO_SEQUENCE = [np.zeros(0), np.zeros(2), np.array([0.0, 1, 7]), np.array([np.nan] * 4)]
#: Every sum that a holder releases, records, and what counts as a blank one.
SUMS = {
    "records, image": (records(lambda held: held.image(BLOCK)), ROWS, [*MISSING, np.zeros(D)]),
    "records, value": (records(lambda held: held.value(BLOCK)), ROWS, [*MISSING, np.zeros(D)]),
    "records, core": (records(lambda held: held.core(BLOCK)), ROWS, [*MISSING, np.zeros(D)]),
    "records, second moment": (
        records(lambda held: held.second_moment()),
        ROWS,
        [*MISSING, np.zeros(D)],
    ),
    "records, entries": (records(lambda held: held.packed()), ROWS, [*MISSING, np.zeros(D)]),
    "records, entries of order 4": (
        lambda rows: len(rows) * RecordLevel(np.array(rows), norm_bound=1.0, order=4).packed(),
        ROWS,
        [*MISSING, np.zeros(D)],
    ),
    "mixture, second moment": (mixture(lambda held: held.seconds()), ROWS, MISSING),
    "mixture, third moment": (
        mixture(lambda held: held.thirds(SPAN.mean, SPAN.whitener, 1.5)),
        ROWS,
        MISSING,
    ),
    "sources, second moment": (
        mixture(lambda held: held.seconds(SPAN.mean, SPAN.whitener)),
        ROWS,
        MISSING,
    ),
    "sources, fourth moment": (
        mixture(lambda held: held.fourths(SPAN.mean, SPAN.whitener, 1.5, 0.7)),
        ROWS,
        MISSING,
    ),
    "mixture, step": (
        mixture(lambda held: held.shares(responsibilities, 2, np.zeros(D), 0.7)),
        ROWS,
        MISSING,
    ),
    "documents, lengths": (documents(lambda held: held.lengths()), list(COUNTS), NO_DOCUMENT),
    "documents, words": (documents(lambda held: held.words()), list(COUNTS), NO_DOCUMENT),
    "documents, pairs": (
        documents(lambda held: held.pairs(np.arange(D))),
        list(COUNTS),
        NO_DOCUMENT,
    ),
    "documents, step": (
        documents(lambda held: held.responsibilities(TOPICS, np.ones(D), 0.1)),
        list(COUNTS),
        NO_DOCUMENT,
    ),
    "documents, votes": (votes, list(COUNTS), [np.zeros(D), np.full(D, -1.0), np.full(D, np.nan)]),
    "answers, pairs": (answers(lambda held: held.pairs()), list(CODES), [np.full(3, -1)]),
    "answers, core": (
        answers(lambda held: held.core(MAPS, (1.0, 1.0, 1.0))),
        list(CODES),
        [np.full(3, -1)],
    ),
    "answers, step": (
        answers(lambda held: held.step(CLASSES.responsibilities, 2)),
        list(CODES),
        [np.full(3, -1)],
    ),
    "sequences": (triples, SEQUENCES, NO_SEQUENCE),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_blank_record_adds_nothing(name):
    add_up, some, blanks = SUMS[name]
    expected = add_up(some)
    assert np.abs(expected).max() > 0
    for blank in blanks:
        with_blank = add_up([*some[:2], blank, *some[2:]])
        np.testing.assert_allclose(
            with_blank, expected, rtol=1e-13, atol=1e-13
        )  # sums in other blocks round otherwise


def test_the_relation_has_the_same_words_for_all_holders():
    for relation, words in RELATIONS.items():
        held = [
            RecordLevel(np.eye(D), norm_bound=1.0, neighbour_relation=relation),
            BoundedCounts(COUNTS, neighbour_relation=relation),
            WordVotes(
                sparse.csr_array(COUNTS), np.array(list("abcd")), neighbour_relation=relation
            ),
        ]
        assert all(words in each.neighbours for each in held)
    with pytest.raises(ValueError, match="'replace', 'add_remove'"):
        PrivateSums(None, 3, record="row", neighbour_relation="add or remove")

"""No neighbouring corpus moves an answer of private word counts by more than declared: brute force
over neighbours.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import LENGTH_EDGES, BoundedCounts
from odeco.privacy.sums import PrivateSums

N_WORDS = 6
TOPICS = np.random.default_rng(5).dirichlet(np.ones(N_WORDS), 3)
SCALES = np.linspace(0.5, 2.0, N_WORDS)
QUESTIONS = {
    "lengths": (lambda held: held.lengths(), LENGTH_EDGES.size),
    "words": (lambda held: held.words(), N_WORDS),
    "pairs": (lambda held: held.pairs(np.array([0, 1, 3, 4, 5])), 10),
    "responsibilities": (lambda held: held.responsibilities(TOPICS, SCALES, 0.3), 3 * N_WORDS),
}


def declared_for(held, query):
    """Return the sensitivity that is charged for a query."""
    settings = {"record": held.unit, "neighbour_relation": held.neighbour_relation}
    return PrivateSums(Guarantee(1.0, 1e-6), held.n_records, **settings).sensitivity(query)


def random_document(generator):
    """Return counts of one document, now and then one word over and over, or of no or a few
    words.
    """
    if generator.integers(4) == 0:
        document = np.zeros(N_WORDS)
        document[generator.integers(N_WORDS)] = generator.integers(0, 40)
        return document
    return generator.multinomial(
        generator.integers(0, 30), generator.dirichlet(np.full(N_WORDS, 0.3))
    ).astype(float)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("users", [False, True])
def test_no_neighbouring_corpus_moves_an_answer_by_more_than_declared(question, relation, users):
    generator = np.random.default_rng(0)
    groups = np.array([0, 1, 0, 1, 0, 2, 3, 4]) if users else None
    changed = np.array([0, 2, 4]) if users else np.array([0])
    ask, size = QUESTIONS[question]
    worst = 0.0
    for trial in range(80):
        corpus = np.array([random_document(generator) for _ in range(8)])
        neighbour = corpus.copy()
        for place in changed:
            neighbour[place] = 0.0 if relation == "add_remove" else random_document(generator)
        if (
            trial == 0
        ):  # two words against two others, once and over and over: the two have nothing in common
            corpus[changed], neighbour[changed] = 0.0, 0.0
            corpus[changed, :2] = 7.0
            if relation == "replace":
                neighbour[changed, 4:] = 1.0
        held = [
            BoundedCounts(sparse.csr_array(data), groups=groups, neighbour_relation=relation)
            for data in (corpus, neighbour)
        ]
        queries = [ask(each) for each in held]
        answers = [query.answer() for query in queries]
        assert all(
            query.size == answer.size == size
            for query, answer in zip(queries, answers, strict=True)
        )
        moved, declared = (
            float(np.linalg.norm(answers[0] - answers[1])),
            declared_for(held[0], queries[0]),
        )
        assert moved <= declared
        worst = max(worst, moved / declared)
    # What the unit of the first trial adds, and what takes its place, are orthogonal and of norm 1:
    # the bound itself.
    assert worst > 0.999


@pytest.mark.parametrize("question", ["words", "pairs", "responsibilities"])
def test_the_rounding_errors_of_a_sum_are_within_what_is_declared_for_them(question):
    generator = np.random.default_rng(1)
    documents = np.array([random_document(generator) for _ in range(400)])
    ask, _ = QUESTIONS[question]
    held = BoundedCounts(documents, neighbour_relation="add_remove")
    query = ask(held)
    single = [ask(BoundedCounts(documents[row : row + 1])).answer() for row in range(400)]
    # What each document adds is the same in a sum over all as alone; these are added up without
    # rounding.
    exact = [
        sum(map(Fraction, column))
        for column in zip(*(each.ravel().tolist() for each in single), strict=True)
    ]
    errors = [
        abs(Fraction(value) - true)
        for value, true in zip(query.answer().ravel().tolist(), exact, strict=True)
    ]
    slack = declared_for(held, query) - 1
    assert 0 < math.sqrt(sum(float(error) ** 2 for error in errors)) < slack / 2
    norms = [float(np.linalg.norm(each)) for each in single]
    assert all(norm == 0 or abs(norm - 1) < slack / 2 for norm in norms)
    assert sum(norm > 0 for norm in norms) > 200


def test_what_a_document_adds_depends_on_no_other_document():
    generator = np.random.default_rng(2)
    own, others = (
        random_document(generator),
        np.array([random_document(generator) for _ in range(2 * 9)]),
    )
    own[:3] += 2
    added = []
    for before in (others[:9], others[9:]):
        alone = [
            ask(BoundedCounts(np.vstack([own, np.zeros((9, N_WORDS))]))).answer()
            for ask, _ in QUESTIONS.values()
        ]
        beside = [
            ask(BoundedCounts(np.vstack([own, before]))).answer() for ask, _ in QUESTIONS.values()
        ]
        rest = [
            ask(BoundedCounts(np.vstack([0 * own, before]))).answer()
            for ask, _ in QUESTIONS.values()
        ]
        for a, b, c in zip(alone, beside, rest, strict=True):
            assert np.allclose(a, b - c, atol=1e-14)
        added.append(alone)
    assert all(np.array_equal(a, b) for a, b in zip(*added, strict=True))


def test_answers_are_what_their_formulas_say():
    counts = np.array([[4.0, 1.0, 0.0, 0.0], [0.0, 9.0, 16.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    held = BoundedCounts(counts)
    roots = np.sqrt(counts)
    unit = roots[:2] / np.linalg.norm(roots[:2], axis=1, keepdims=True)
    assert np.allclose(held.words().answer(), unit.sum(axis=0))
    assert np.allclose(
        held.pairs(np.array([0, 1, 2])).answer(), [1.0, 0.0, 1.0]
    )  # one pair of words each, of norm 1
    assert held.lengths().answer().sum() == 2
    # Two topics without a word in common: the other words of both documents are of the second
    # topic, or as likely of the first, but for the smoothing.
    topics = np.array([[1.0, 1e-9, 1e-9, 1e-9], [1e-9, 1.0, 1.0, 1.0]])
    dealt = held.responsibilities(topics, np.ones(4), 1e-3).answer()
    assert np.allclose(dealt[2], [0.0, 4 / 5], atol=1e-3)  # beside it the second word, nine times
    assert np.allclose(
        dealt[0], [0.0, 2 / math.sqrt(5)], atol=2e-3
    )  # beside it the second word once
    assert np.allclose(dealt[1], [1 / math.sqrt(5), 3 / 5], atol=2e-3)


def test_the_documents_of_a_user_are_weighed_alike_added_up_and_scaled_to_norm_1():
    counts = np.array([[9.0, 0.0], [0.0, 4.0], [1.0, 0.0]])
    users = BoundedCounts(counts, groups=np.array(["a", "b", "a"]))
    assert np.allclose(users.words().answer(), [1.0, 1.0])
    together = BoundedCounts(counts, groups=np.zeros(3))
    assert np.allclose(together.words().answer(), np.array([2.0, 1.0]) / math.sqrt(5))
    assert np.linalg.norm(together.lengths().answer()) == pytest.approx(1.0)


def test_documents_that_are_none_count_as_empty_without_a_word():
    good = np.random.default_rng(2).integers(0, 4, size=(10, N_WORDS)).astype(float)
    bad, clean = good.copy(), good.copy()
    bad[0, 1], bad[1, 0], bad[2, 2], bad[3, 3], bad[4, 0] = np.nan, -1.0, 0.5, np.inf, 1e300
    clean[:5] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = BoundedCounts(bad), BoundedCounts(clean)
        for ask, _ in QUESTIONS.values():
            assert np.array_equal(ask(first).answer(), ask(second).answer())


def test_what_is_no_corpus_is_refused():
    with pytest.raises(
        TypeError, match=r"Private counts must be a NumPy array or a CSR array.*Got list"
    ):
        BoundedCounts([[1, 2]])
    with pytest.raises(ValueError, match="`groups` must hold one label per row"):
        BoundedCounts(np.eye(3), groups=[1, 2])
    with pytest.raises(ValueError, match="neighbour_relation"):
        BoundedCounts(np.eye(3), neighbour_relation="swap")

"""Users with several records: whatever these are, no sum moves by more than one record may move
it.
"""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
from sealing import plain, play_back, record

from odeco.models import LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.lda.private_vocabulary import choose_vocabulary_privately
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.protocol import unit_weights
from odeco.privacy.holders.rows import BoundedRows, UnboundedRows
from odeco.privacy.holders.sequences import PrivateSequences
from odeco.privacy.holders.tables import Levels
from odeco.privacy.sums import PrivateSums
from odeco.private import choose_norm_bound, decompose_privately, private_subspace

#: Five users with 1 to 7 records, whose records are not together.
USERS = np.array([0, 1, 2, 3, 4, 4, 3, 2, 4, 3, 4, 4, 4, 4])
N, D = USERS.size, 3
QUESTIONS = Levels(np.array([2, 3, 2]))
MAPS = tuple(np.random.default_rng(8).standard_normal((7, 2)) for _ in range(3))
MODEL = Gaussians(np.array([0.6, 0.4]), np.array([[0.3, 0, 0], [0, -0.4, 0.1]]), np.full(2, 0.05))


def row(rng):
    kind = rng.integers(6)
    if kind == 0:
        return np.full(D, [np.nan, np.inf, 1.7e308, 5e-324][rng.integers(4)])
    if kind == 1:
        return rng.choice([-9.0, 9.0]) * np.eye(D)[rng.integers(D)]
    return rng.uniform(0, 2) * rng.standard_normal(D)


def answers(rng):
    return rng.integers(-1, [2, 3, 2]) if rng.random() < 0.8 else np.full(3, -1)


def symbols(rng):
    if rng.random() < 0.2:
        return [[], [7.0] * 4, [np.nan] * 5, [0.5, 1, 0]][rng.integers(4)]
    return rng.integers(0, 3, size=rng.integers(2, 12)) * (
        rng.random() < 0.7
    )  # or the same symbol again and again


def held_rows(rows):
    return BoundedRows(np.array(rows), 1.0, USERS)


def held_any_rows(rows):
    return UnboundedRows(np.array(rows), USERS)


def held_answers(codes):
    return HeldAnswers(QUESTIONS.indicators(np.array(codes)), QUESTIONS, USERS)


def held_sequences(sequences):
    rows = np.concatenate([np.asarray(each, float) for each in sequences])
    return PrivateSequences(rows, np.array([len(each) for each in sequences]), 3, USERS)


def of_classes(given):
    return np.column_stack([given[:, 0], 1 - given[:, 0]])


#: How a record is drawn, what a blank one is, the holder of records, and a query.
CASES = {
    "second moment": (row, np.full(D, np.nan), held_rows, lambda held: held.seconds()),
    "third moment": (
        row,
        np.full(D, np.nan),
        held_rows,
        lambda held: held.thirds(np.zeros(D), 2 * np.eye(D), 1.5),
    ),
    "whitened second moment": (
        row,
        np.full(D, np.nan),
        held_rows,
        lambda held: held.seconds(np.zeros(D), 2 * np.eye(D)),
    ),
    "fourth moment": (
        row,
        np.full(D, np.nan),
        held_rows,
        lambda held: held.fourths(np.zeros(D), 2 * np.eye(D), 1.5, 0.7),
    ),
    "EM iteration": (
        row,
        np.full(D, np.nan),
        held_rows,
        lambda held: held.shares(lambda rows: MODEL.posterior(rows)[0], 2, np.zeros(D), 0.7),
    ),
    "EM iteration with covariances": (
        row,
        np.full(D, np.nan),
        held_rows,
        lambda held: held.shares(
            lambda rows: MODEL.posterior(rows)[0], 2, np.zeros(D), 0.7, "full"
        ),
    ),
    "counts by column": (row, np.full(D, np.nan), held_any_rows, lambda held: held.column_counts()),
    "pairs of answers": (answers, np.full(3, -1), held_answers, lambda held: held.pairs()),
    "core of answers": (
        answers,
        np.full(3, -1),
        held_answers,
        lambda held: held.core(MAPS, (0.5, 0.7, 0.9)),
    ),
    "answers by class": (
        answers,
        np.full(3, -1),
        held_answers,
        lambda held: held.step(of_classes, 2),
    ),
    "triples": (symbols, [], held_sequences, lambda held: held.query()),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_user_moves_a_sum_by_more_than_declared(case, relation):
    draw, blank, hold, ask = CASES[case]
    rng, worst = np.random.default_rng(0), 0.0
    sums = PrivateSums(
        Guarantee(1.0, 1e-6), 5, record="user", n_terms=N, neighbour_relation=relation
    )
    for number in range(400):
        records = [draw(rng) for _ in range(N)]
        user = number % 5
        # All records of a user may well be alike: their mean is then as long as one of them.
        of_user = [draw(rng) if number % 2 else None, draw(rng) if number % 3 else None]
        pair = [
            [
                (draw(rng) if same is None else same) if owner == user else each
                for each, owner in zip(records, USERS, strict=True)
            ]
            for same in of_user
        ]
        if relation == "add_remove":
            pair[1] = [
                blank if owner == user else each for each, owner in zip(pair[0], USERS, strict=True)
            ]
        queries = [ask(hold(each)) for each in pair]
        moved = float(np.linalg.norm(queries[0].answer() - queries[1].answer()))
        assert moved <= sums.sensitivity(queries[0])
        worst = max(worst, moved / sums.sensitivity(queries[0]))
    assert worst > 0.5  # the bound is no idle one


@pytest.mark.parametrize("case", CASES)
def test_a_user_adds_the_mean_of_what_the_records_add(case):
    draw, _, hold, ask = CASES[case]
    rng = np.random.default_rng(1)
    records = [draw(rng) for _ in range(N)]
    blank = CASES[case][1]
    weights, n_users = unit_weights(USERS, N)
    assert (n_users, weights.tolist()) == (
        5,
        [1, 1, 1 / 2, 1 / 3, *[1 / 7] * 2, 1 / 3, 1 / 2, 1 / 7, 1 / 3, *[1 / 7] * 4],
    )
    alone = [
        ask(hold([each if place == number else blank for place in range(N)])).answer()
        for number, each in enumerate(records)
    ]
    np.testing.assert_allclose(ask(hold(records)).answer(), sum(alone), atol=1e-12)
    assert np.linalg.norm(alone[4]) <= ask(hold(records)).bound / 7 * (1 + 1e-12)


def mixture(rows):
    users = np.arange(len(rows)) // 3
    return TensorMixture(2, epsilon=4.0, delta=1e-6, norm_bound="auto", random_state=0).fit(
        rows, groups=users
    )


def sources(rows):
    users = np.arange(len(rows)) // 3
    return TensorICA(2, epsilon=4.0, delta=1e-6, norm_bound=2.0, random_state=0).fit(
        rows, groups=users
    )


def classes(rows):
    users = np.arange(len(rows)) // 3
    model = LatentClasses(2, epsilon=4.0, delta=1e-6, random_state=0)
    return model.fit((rows > 0).astype(int), categories=2, groups=users)


def states(rows):
    n_sequences = len(rows) // 5
    model = TensorHMM(
        2, emissions="categorical", n_symbols=3, epsilon=4.0, delta=1e-6, random_state=0
    )
    symbols = np.abs(np.where(np.isfinite(rows[:, 0]), rows[:, 0], 0)).astype(int) % 3
    return model.fit(symbols, lengths=[5] * n_sequences, groups=np.arange(n_sequences) // 3)


@pytest.mark.parametrize("fit", [mixture, sources, classes, states])
def test_a_model_of_users_says_whom_it_protects_and_learns_from_releases_alone(fit):
    rows = np.random.default_rng(2).standard_normal((300, 4))
    model, seen = record(lambda: fit(rows))
    played, unseen = play_back(lambda: fit(np.full_like(rows, 5.0)), seen.released)
    assert seen.scales == unseen.scales
    assert plain(vars(model.privacy_)) == plain(vars(played.privacy_))
    assert model.privacy_.unit == "user"
    assert "is whose is public" in model.privacy_.neighbours
    assert model.privacy_.epsilon_spent == pytest.approx(4.0, rel=1e-6)
    assert model.n_samples_seen_ == 20 if fit is states else 100


ROWS = np.random.default_rng(3).standard_normal((60, 3))
COUNTS = np.random.default_rng(4).integers(0, 5, size=(60, 8))
TEXTS = ["red green", "green blue", "blue"] * 200
GUARANTEE = {"epsilon": 4.0, "delta": 1e-6}


def decomposed(relation, groups, **settings):
    settings = {"norm_bound": 1.0, "rng": 0, **GUARANTEE, **settings}
    unit = "record" if groups is None else "user"
    return decompose_privately(
        ROWS, 2, unit=unit, groups=groups, neighbour_relation=relation, **settings
    )


def fitted(model, relation, groups, X=ROWS, **how):
    return model.set_params(**GUARANTEE, neighbour_relation=relation, random_state=0).fit(
        X, groups=groups, **how
    )


#: Every kind of run that can protect users, on 60 records (or 600 texts): who adds one adds a line.
RUNS = {
    **{
        name: partial(decomposed, mechanism=name, **settings)
        for name, settings in {
            "input": {},
            "core": {},
            "subspace": {},
            "joint": {"n_restarts": 3, "n_iterations": 2},
            "wang2016": {"n_restarts": 3, "n_iterations": 2},
        }.items()
    },
    "order 4": partial(decomposed, order=4, mechanism="joint", n_restarts=3, n_iterations=2),
    "bound auto": partial(decomposed, mechanism="input", norm_bound="auto"),
    "private_subspace": lambda relation, groups: private_subspace(
        ROWS, 2, **GUARANTEE, norm_bound=1.0, groups=groups, neighbour_relation=relation
    ),
    "choose_norm_bound": lambda relation, groups: choose_norm_bound(
        ROWS, **GUARANTEE, groups=groups, neighbour_relation=relation
    ),
    "mixture": lambda *whom: fitted(TensorMixture(2, norm_bound="auto"), *whom),
    "mixture, standardised": lambda *whom: fitted(
        TensorMixture(2, norm_bound="auto", standardize=True), *whom
    ),
    "sources": lambda *whom: fitted(TensorICA(2, norm_bound=2.0), *whom),
    "classes": lambda *whom: fitted(LatentClasses(2), *whom, (ROWS > 0).astype(int), categories=2),
    "states": lambda *whom: fitted(
        TensorHMM(2, emissions="categorical", n_symbols=2),
        *whom,
        np.tile([0, 1, 1], 120),
        lengths=[6] * 60,
    ),
    "topics": lambda relation, groups: fitted(
        TensorLDA(2, unit="document" if groups is None else "user"), relation, groups, COUNTS
    ),
    "vocabulary": lambda relation, groups: choose_vocabulary_privately(
        TEXTS,
        **GUARANTEE,
        groups=None if groups is None else np.arange(600),
        neighbour_relation=relation,
    ),
}


# Whether topics stand clear is up to the noise, and not what is tested here.
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("name", RUNS)
def test_users_with_one_record_each_are_charged_as_records_are(name, relation):
    # They are the same neighbours, so that no release may have another scale.
    _, seen = record(lambda: RUNS[name](relation, None))
    _, users = play_back(lambda: RUNS[name](relation, np.arange(60)), seen.released)
    assert len(seen.scales) > 0
    np.testing.assert_allclose(users.scales, seen.scales, rtol=1e-9)


@pytest.mark.parametrize("name", ["mixture", "sources", "classes", "states", "topics"])
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_the_rounding_errors_of_all_records_of_users_are_declared(name):
    # Sums over N records of G users, each with its weight, err by N + 8 units of roundoff times G,
    # see `PrivateSums`. Two neighbours may err in opposite directions. All else that is declared
    # follows from the bound.
    asked, release = [], PrivateSums.release

    def noted(sums, query, *, share):
        asked.append((query, sums.sensitivity(query)))
        return release(sums, query, share=share)

    with mock.patch.object(PrivateSums, "release", noted):
        RUNS[name]("add_remove", np.arange(60) // 20)
    inexact = [(query, declared) for query, declared in asked if not query.exact]
    assert inexact
    for query, declared in inexact:
        assert declared / query.bound - 1 >= 2 * 2.0**-53 * 3 * (60 + 8) * (1 - 1e-3) - 2.0**-52


def test_groups_of_a_model_that_is_not_private_or_of_other_lengths_are_refused():
    rows = np.random.default_rng(2).standard_normal((30, 4))
    with pytest.raises(ValueError, match="`groups` is for private models"):
        TensorMixture(2).fit(rows, groups=np.arange(30))
    with pytest.raises(ValueError, match="`groups` must hold one label per row"):
        TensorMixture(2, epsilon=1.0, delta=1e-6, norm_bound=1.0).fit(rows, groups=np.arange(29))
    with pytest.raises(ValueError, match="at least as many users as components"):
        TensorMixture(3, epsilon=1.0, delta=1e-6, norm_bound=1.0).fit(
            rows, groups=np.arange(30) // 15
        )

"""Private latent classes: what a respondent adds is bounded, noise is as charged, and nothing else
is learnt from.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sealing import plain, play_back, record

from odeco.models import LatentClasses
from odeco.models.lca import private as _private
from odeco.models.lca.classes import Classes
from odeco.models.lca.private import plan_classes, release_shares
from odeco.privacy import LedgerFile
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.tables import Levels
from odeco.privacy.sums import PrivateSums

QUESTIONS = Levels(np.array([2, 3, 2, 4]))
D, K = QUESTIONS.n_levels, 3
_RNG = np.random.default_rng(5)
CLASSES = Classes(
    np.array([0.5, 0.3, 0.2]),
    np.concatenate([_RNG.dirichlet(np.ones(size), K).T for size in QUESTIONS.sizes]),
)
#: Classes that are told apart by any answer: a respondent belongs to one of them alone.
SURE = Classes(np.array([0.5, 0.5]), np.clip(np.tile(np.eye(2), (6, 1))[:D], 1e-12, 1))
MAPS = tuple(_RNG.standard_normal((D, K)) for _ in range(3))
LENGTHS = (0.5, 1.0, 2.0)
QUERIES = {
    "pairs": lambda held: held.pairs(),
    "core": lambda held: held.core(MAPS, LENGTHS),
    "step": lambda held: held.step(CLASSES.responsibilities, K),
    "step of sure classes": lambda held: held.step(SURE.responsibilities, 2),
    "step of a function that returns no probabilities": lambda held: held.step(
        lambda given: 1e9 * given[:, :2], 2
    ),
}


def held(codes):
    return HeldAnswers(QUESTIONS.indicators(codes), QUESTIONS)


def random_codes(generator, n_rows, missing=0.2):
    codes = np.column_stack([generator.integers(0, size, n_rows) for size in QUESTIONS.sizes])
    codes[generator.random(codes.shape) < missing] = -1
    return codes


@pytest.mark.parametrize("asked", QUERIES)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_a_sum_by_more_than_declared(asked, relation):
    ask = QUERIES[asked]
    sums = PrivateSums(Guarantee(1.0, 1e-6), 6, record="respondent", neighbour_relation=relation)
    query = ask(held(np.zeros((6, 4), dtype=int)))
    assert query.answer().size == query.size
    declared, generator, worst = sums.sensitivity(query), np.random.default_rng(0), 0.0
    for trial in range(300):
        codes = random_codes(generator, 6, missing=0.0 if trial % 2 else 0.3)
        other = codes.copy()
        other[0] = -1 if relation == "add_remove" else random_codes(generator, 1)[0]
        if trial == 0:
            codes[0], other[0] = 0, np.where(relation == "replace", 1, -1)  # no answer in common
        moved = float(np.linalg.norm(ask(held(codes)).answer() - ask(held(other)).answer()))
        assert moved <= declared
        worst = max(worst, moved / declared)
    # The pairs and the sure step of two respondents without a common answer are orthogonal and of
    # full norm. The core is full if all three vectors are long, and opposite vectors are rare;
    # probabilities of unsure classes are short.
    expected = {"pairs": 0.999, "step of sure classes": 0.999}.get(asked, 0.5)
    assert worst > expected


def every_respondent():
    """Return all that a respondent can answer."""
    return np.array(list(itertools.product(*(range(-1, size) for size in QUESTIONS.sizes))))


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("lengths", [(0.5, 0.5, 0.5), (1.5, 1.2, 2.0)])
def test_what_is_charged_for_the_core_covers_the_worst_neighbours(relation, lengths, monkeypatch):
    """Whatever maps follow from earlier releases: here the first two answers to a question have
    opposite vectors.
    """
    k, n_rows = 2, 200
    opposite = np.zeros((D, k))
    opposite[:2] = [
        [100.0, 30.0],
        [-100.0, -30.0],
    ]  # so long that all are shortened to the full length
    maps = (opposite,) * 3
    asked = []

    def ask_for_these(tables, views, n_components, ask, *, seed):
        asked.append(ask(maps, lengths))
        return _private.classes_at_random(tables, n_components, np.random.default_rng(seed))

    monkeypatch.setattr(_private, "classes_of_views", ask_for_these)
    monkeypatch.setattr(_private, "_WITHOUT_CORE", _private._WITH_CORE)
    monkeypatch.setattr(_private.PairTables, "n_clear", lambda *_: 1)
    codes = random_codes(np.random.default_rng(2), n_rows)
    report = fitted(codes, neighbour_relation=relation)["privacy_"]
    (charge,) = [each for each in report.charges if "third moment" in each.mechanism]
    assert len(asked) == 1
    answers = [held(each[None]).core(maps, lengths).answer().ravel() for each in every_respondent()]
    others = answers if relation == "replace" else [np.zeros(k**3)]
    moved = max(float(np.linalg.norm(one - other)) for one in answers for other in others)
    assert 0.999 * charge.sensitivity < moved <= charge.sensitivity


@pytest.mark.parametrize("asked", QUERIES)
def test_what_a_respondent_adds_depends_on_no_other_and_is_added_within_the_declared_rounding(
    asked,
):
    ask = QUERIES[asked]
    codes = random_codes(np.random.default_rng(1), 300)
    sums = PrivateSums(
        Guarantee(1.0, 1e-6), 300, record="respondent", neighbour_relation="add_remove"
    )
    query = ask(held(codes))
    slack = sums.sensitivity(query) - query.bound
    single = [ask(held(codes[row : row + 1])).answer().ravel().tolist() for row in range(300)]
    exact = [sum(map(Fraction, column)) for column in zip(*single, strict=True)]
    errors = [
        abs(Fraction(value) - true)
        for value, true in zip(query.answer().ravel().tolist(), exact, strict=True)
    ]
    assert math.sqrt(sum(float(error) ** 2 for error in errors)) < slack / 2
    assert max(np.linalg.norm(each) for each in single) <= query.bound + slack / 2


def fitted(codes, **settings):
    model = LatentClasses(2, epsilon=3.0, delta=1e-6, random_state=0, **settings).fit(
        codes, categories=[2, 3, 2, 4]
    )
    return {
        name: getattr(model, name)
        for name in ("class_weights_", "answer_probabilities_", "privacy_")
    }


#: All respondents of a class answer alike.
TWO_CLASSES = np.outer(np.arange(200) % 2, [1, 2, 1, 3])


@pytest.mark.parametrize(
    "codes", [random_codes(np.random.default_rng(2), 200), TWO_CLASSES], ids=["none", "classes"]
)
@pytest.mark.parametrize("other", [np.full((200, 4), -1), np.zeros((200, 4), dtype=int)])
def test_the_same_releases_give_the_same_model_whatever_the_answers_are(codes, other):
    model, seen = record(lambda: fitted(codes))
    played, unseen = play_back(lambda: fitted(other), seen.released)
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert all(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize(
    "codes", [random_codes(np.random.default_rng(3), 200), TWO_CLASSES], ids=["none", "classes"]
)
def test_every_release_has_the_noise_of_its_charge_and_all_charges_are_the_budget(codes):
    model, seen = record(lambda: fitted(codes))
    report = model["privacy_"]
    assert report.private
    assert report.epsilon_spent == pytest.approx(3.0, rel=1e-6)
    assert seen.scales == [charge.scale for charge in report.charges]
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf([1e-9, 1 - 1e-9], exact.size)
        assert low < np.sum(((released - exact) / scale) ** 2) < high


def test_shares_sum_to_one():
    for k in (1, 2, 10, 50):
        for n_rows in (100, 1_000_000):
            plan = release_shares(QUESTIONS, k, n_rows=n_rows, mu=0.2)
            assert plan.pairs + plan.core + sum(plan.steps) == pytest.approx(1)
    assert plan.core == 0  # no three views have 50 directions


@pytest.mark.slow
def test_most_of_what_there_is_to_find_is_found():
    rng = np.random.default_rng(0)
    questions = Levels(np.full(12, 3))
    truth = Classes(
        np.array([0.4, 0.3, 0.3]),
        np.concatenate([rng.dirichlet(np.ones(3), 3).T for _ in range(12)]),
    )
    codes, _ = truth.draw(questions, 30_000, rng)
    new, _ = truth.draw(questions, 5_000, rng)
    plan = plan_classes(
        3, n_respondents=30_000, categories=3, n_questions=12, epsilon=2.0, delta=1e-6
    )
    assert plan.n_expected == 3
    model = LatentClasses(3, epsilon=2.0, delta=1e-6, random_state=0).fit(codes, categories=3)
    best, none = (LatentClasses(k, random_state=0).fit(codes).score(new) for k in (3, 1))
    # A model that has found nothing is one class, whose gap to the best open model is the whole
    # that can be found.
    assert best - model.score_samples(new).mean() < 0.1 * (best - none)


@pytest.mark.slow
def test_the_plan_knows_the_noise_of_a_run_and_when_nothing_can_be_found():
    plan = plan_classes(2, n_respondents=200, categories=[2, 3, 2, 4], epsilon=3.0, delta=1e-6)
    charges = fitted(TWO_CLASSES)["privacy_"].charges
    assert [charge.mechanism for charge in charges] == [each.what for each in plan.releases]
    # The noise of the core depends on what the pairs release; that of the others is known
    # beforehand.
    for number in (0, -2, -1):
        assert charges[number].scale == pytest.approx(plan.releases[number].noise, rel=1e-9)
    hopeless = plan_classes(
        5, n_respondents=1_000, categories=3, n_questions=20, epsilon=0.1, delta=1e-6
    )
    assert hopeless.n_expected == 0
    assert "0 would be clear" in str(hopeless)
    with pytest.raises(ValueError, match="at least 2 questions"):
        plan_classes(2, n_respondents=100, categories=[3], epsilon=1.0, delta=1e-6)


@pytest.mark.slow
def test_answers_without_classes_are_one_class_with_the_whole_budget():
    """The pairs are released twice, with the noise of one release together, and nothing else is."""
    for relation in ("replace", "add_remove"):
        model = fitted(
            random_codes(np.random.default_rng(3), 4000, 0.0), neighbour_relation=relation
        )
        report = model["privacy_"]
        assert len({charge.mechanism for charge in report.charges}) == 1
        assert len(report.charges) == 2
        assert report.epsilon_spent == pytest.approx(report.epsilon, rel=1e-6)
        assert all(np.ptp(each, axis=0).max() == 0.0 for each in model["answer_probabilities_"])
    codes = random_codes(np.random.default_rng(5), 4000, 0.0)
    model = LatentClasses(3, epsilon=1.0, delta=1e-6, random_state=0).fit(
        codes, categories=QUESTIONS.sizes.tolist()
    )
    assert not model.converged_
    assert model.summary().startswith(
        "3 classes that noise hides: all answer as all respondents do."
    )
    one = LatentClasses(1, epsilon=1.0, delta=1e-6, random_state=0).fit(
        codes, categories=QUESTIONS.sizes.tolist()
    )
    new = random_codes(np.random.default_rng(6), 4000, 0.0)
    # Frequencies of both err by less than 0.02: each sums three tables of at most 12 cells, with
    # noise of 15 of 4,000.
    assert model.score_samples(new).mean() > one.score_samples(new).mean() - 0.02


def test_a_ledger_pays_for_all_models_together(tmp_path):
    LedgerFile.create(
        tmp_path / "survey.ledger", data="people", unit="record", epsilon=4.0, delta=1e-6
    )
    codes = random_codes(np.random.default_rng(3), 200)
    fitted(codes, ledger=tmp_path / "survey.ledger")
    with pytest.raises(RuntimeError, match="Budget exhausted"):
        fitted(codes, ledger=tmp_path / "survey.ledger")


def test_a_private_model_says_nothing_exact(tmp_path):
    codes = TWO_CLASSES
    model = LatentClasses(2, epsilon=3.0, delta=1e-6, random_state=0).fit(
        codes, categories=[2, 3, 2, 4]
    )
    for name in ("score", "bic", "aic"):
        with pytest.raises(
            ValueError, match=f"The {name} of a private model must not choose between models"
        ):
            getattr(model, name)(codes)
    with pytest.raises(AttributeError, match="is exact, and a private model does not have it"):
        _ = model.log_likelihood_
    assert "noise that hides each respondent" in model.summary()
    model.save(tmp_path / "model.npz")
    again = LatentClasses.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    assert np.array_equal(again.predict_proba(codes), model.predict_proba(codes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, X: model.fit(X), "A private model needs the answers to each question"),
        (lambda model, X: model.fit(X[:, :1], categories=2), "needs at least 2 questions"),
        (lambda model, X: model.partial_fit(X, categories=4), "at once"),
        (
            lambda model, X: model.set_params(n_components="auto").fit(X, categories=4),
            "must be an int for a private model",
        ),
        (lambda model, X: model.set_params(delta=0.5).fit(X, categories=4), "delta"),
        (lambda model, X: model.fit(X[0], categories=4), "must have two axes"),
    ],
)
def test_what_privacy_cannot_have_is_refused(call, message):
    X = random_codes(np.random.default_rng(3), 200)
    with pytest.raises(ValueError, match=message):
        call(LatentClasses(2, epsilon=3.0, delta=1e-6), X)


def test_lists_are_refused_as_what_becomes_of_them_depends_on_their_cells():
    with pytest.raises(TypeError, match=r"must be a NumPy array .* or a pandas table\. Got list"):
        LatentClasses(2, epsilon=3.0, delta=1e-6).fit([[0, 1], [1, 0]], categories=2)


def test_tables_of_texts_are_private_too():
    codes = random_codes(np.random.default_rng(3), 200)
    words = ["a", "b", "c", "d"]
    table = pd.DataFrame(
        {f"q{j}": [None if code < 0 else words[code] for code in codes[:, j]] for j in range(4)}
    )
    named = [words[:size] for size in QUESTIONS.sizes]
    _, seen = record(lambda: fitted(codes))
    settings = {"epsilon": 3.0, "delta": 1e-6, "random_state": 0}
    _, unseen = play_back(
        lambda: LatentClasses(2, **settings).fit(table, categories=named), seen.released
    )
    assert all(np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]", "Float32", "boolean"])
def test_a_missing_answer_changes_how_no_other_is_read(kind):
    # pandas makes floats of whole numbers where one is missing, and 2⁵³ + 1 became 2⁵³ for all who
    # answered that.
    large = [2**53, 2**53 + 1, 3]
    single = [float(np.float32(0.1)), 0.5, 3.0]
    answers = {"Float32": single, "boolean": [False, True]}.get(kind, large)
    column = pd.Series([answers[place % len(answers)] for place in range(9)]).astype(kind)
    table, other = (pd.DataFrame({"first": column, "second": column}) for _ in range(2))
    other.loc[4] = pd.NA
    missing = (
        0.1 if kind == "Float32" else None
    )  # equal to the first answer in single precision, and not in double
    model = LatentClasses(2, epsilon=1.0, delta=1e-6, missing_values=missing)
    marked, neighbour = (
        model._hold(each, model._specify(), categories=[answers, answers])[0].marked
        for each in (table, other)
    )
    rest = np.arange(9) != 4
    assert marked.sum() == 18
    assert neighbour[4].sum() == 0
    assert np.array_equal(marked[rest], neighbour[rest])

"""A model of under 80 lines gets fit, stream, choice of k, files, summary, plot, page and command
from the engine.
"""

import pickle
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import toy
from sklearn.utils.estimator_checks import parametrize_with_checks
from toy import PoissonMixture

import odeco
from odeco._util.files import load_arrays, save_arrays
from odeco.cli.app import run
from odeco.cli.models import MODELS, RegisteredModel
from odeco.models.engine.page import write_model_report

RATES = np.array([[9.0, 1.0, 3.0], [1.0, 8.0, 3.0]])


def counts(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(RATES[rng.integers(2, size=n)]).astype(float)


def same(first, second):
    return np.array_equal(first.rates_, second.rates_) and np.array_equal(
        first.weights_, second.weights_
    )


def test_the_toy_is_small():
    lines = Path(toy.__file__).read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 80


#: What scikit-learn tries with weights that this model cannot do; `test_weights.py` tests what it
#: can.
NOT_WITH_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "EM ends before its maximum by `tol`",
}


@pytest.mark.slow
@parametrize_with_checks([PoissonMixture()], expected_failed_checks=lambda _: NOT_WITH_WEIGHTS)
def test_scikit_learn_conventions_hold(estimator, check):
    if "nonnegative" in str(check):
        return
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        check(estimator)


def test_fit_choice_of_k_and_scores():
    rows = counts(900)
    model = PoissonMixture("auto", random_state=0).fit(rows)
    assert model.n_components_ == 2
    assert 2 in model.selection_scores_
    # A rate of about 450 rows deviates by at most √(9/450) = 0.15; five of these.
    np.testing.assert_allclose(np.sort(model.rates_, axis=0), np.sort(RATES, axis=0), atol=0.75)
    assert model.bic(rows) > model.aic(rows) > -2 * model.score_samples(rows).sum()
    assert model.predict_proba(rows).shape == (900, 2)


@pytest.mark.parametrize("n", [3, 399, 400, 777])
def test_streams_do_not_depend_on_batches_nor_on_files(n, tmp_path):
    rows = counts(900)
    whole = PoissonMixture(2, random_state=0).partial_fit(rows)
    PoissonMixture(2, random_state=0).partial_fit(rows[:n]).save(tmp_path / "model.npz")
    model = PoissonMixture.load(tmp_path / "model.npz")
    assert model.n_samples_seen_ == n
    model.partial_fit(rows[n:])
    assert same(whole, model)
    assert model.n_iter_ == 6
    assert same(pickle.loads(pickle.dumps(model)), whole)


def test_the_settings_of_a_stream_are_those_of_its_first_batch(tmp_path):
    rows = counts(500)
    model = PoissonMixture(2, random_state=0).partial_fit(rows[:100]).set_params(n_components=4)
    model.save(tmp_path / "model.npz")
    model = PoissonMixture.load(tmp_path / "model.npz").partial_fit(rows[100:])
    assert (model.n_components, model.n_components_) == (4, 2)


def test_threads_that_feed_one_model_lose_no_row():
    model = PoissonMixture(2, random_state=0)
    batches = np.split(counts(2100), 300)

    def feed(own):
        for batch in own:
            model.partial_fit(batch)
            assert model.n_samples_seen_ > 0

    threads = [threading.Thread(target=feed, args=(batches[first::4],)) for first in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert model.n_samples_seen_ == 2100
    np.testing.assert_allclose(model.weights_ @ model.rates_, RATES.mean(axis=0), atol=0.5)


def test_a_result_that_was_computed_while_rows_came_is_not_taken_for_theirs(monkeypatch):
    model = PoissonMixture(2, random_state=0).partial_fit(counts(300))
    plain = toy.PoissonSpec.fit

    def slow(self, *args):
        monkeypatch.undo()
        model.partial_fit(counts(100, 1))
        return plain(self, *args)

    monkeypatch.setattr(toy.PoissonSpec, "fit", slow)
    before = model.rates_
    assert model.n_samples_seen_ == 400
    assert not np.array_equal(before, model.rates_)


def test_a_failure_keeps_the_model_and_its_features():
    model = PoissonMixture(2, random_state=0).fit(counts(100))
    rates = model.rates_
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="NaN"):
            call(np.full((4, 7), np.nan))
        assert model.n_features_in_ == 3
        assert model.rates_ is rates


def test_summary_plot_and_page(tmp_path):
    model = PoissonMixture(2, random_state=0).fit(counts(300))
    lines = model.summary().splitlines()
    assert lines[0] == "2 components of counts."
    assert any("x0" in line for line in lines)
    assert len(model.plot().axes) == 2
    write_model_report(model, tmp_path / "page.html")
    assert "2 components of counts." in (tmp_path / "page.html").read_text()


def test_one_line_of_the_registry_is_a_command(tmp_path, capsys, monkeypatch):
    line = RegisteredModel(
        command="poisson",
        kind="Poisson mixture",
        module="toy",
        estimator="PoissonMixture",
        data="rows",
        component="component",
        components="components",
        summary="A mixture of counts.",
    )
    monkeypatch.setitem(MODELS, "poisson", line)
    np.savetxt(tmp_path / "rows.csv", counts(300), delimiter=",", header="a,b,c", comments="")
    out, labels, page = tmp_path / "model.npz", tmp_path / "labels.csv", tmp_path / "page.html"
    arguments = [
        "learn",
        "poisson",
        str(tmp_path / "rows.csv"),
        "-k",
        "2",
        "--out",
        str(out),
        "--labels",
        str(labels),
    ]
    assert run([*arguments, "--report", str(page)]) == 0
    assert capsys.readouterr().out.startswith("2 components of counts.")
    assert list(PoissonMixture.load(out).feature_names_in_) == ["a", "b", "c"]
    assert len(labels.read_text().splitlines()) == 301
    assert "2 components of counts." in page.read_text()
    page.unlink()
    assert run(["report", str(out), "--out", str(page)]) == 0
    assert "2 components of counts." in page.read_text()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("fit.params.rates", np.zeros((3, 3)), "k = 2"),
        ("fit.params.rates", None, "it has no 'fit.params.rates'"),
        ("fit.info.n_iter", np.array(-1), "fit.info.n_iter"),
        ("unknown", np.array(0), "unknown"),
    ],
)
def test_damaged_files_are_refused(name, value, text, tmp_path):
    PoissonMixture(2, random_state=0).fit(counts(300)).save(tmp_path / "model.npz")
    header, arrays = load_arrays(tmp_path / "model.npz", "Poisson mixture")
    changed = {key: each for key, each in (arrays | {name: value}).items() if each is not None}
    save_arrays(tmp_path / "model.npz", "Poisson mixture", header, changed)
    with pytest.raises(odeco.FileFormatError, match=text):
        PoissonMixture.load(tmp_path / "model.npz")

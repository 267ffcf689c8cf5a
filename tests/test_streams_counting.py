"""How many components the moment of a stream has, if nobody says: found, refused, or in doubt,
never sure and wrong.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import odeco
from odeco.cli.app import run
from odeco.cp.rank import SURE
from odeco.online.selection import HeldOut, select_on_held_out
from odeco.tensors import DenseTensor, symmetrize


def mixture(n, d=10, k=3, *, cosine=0.3, noise=0.05, seed=0, heavy=False):
    """Rows s μ_h + ε, with s of mean 0 and third moment 2: the third moment of rows is Σ 2 P(h)
    μ_h⊗³, of rank k.

    s is 2 with a chance of 1/3 and −1 else; or, with heavy tails, an exponential variable less its
    mean.
    """
    generator = np.random.default_rng(seed)
    gram = (1 - cosine) * np.eye(k) + cosine
    means = np.linalg.qr(generator.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
    groups, sizes = generator.integers(k, size=n), np.where(generator.random(n) < 1 / 3, 2.0, -1.0)
    sizes = generator.exponential(size=n) - 1 if heavy else sizes
    rows = sizes[:, None] * means.T[groups] + noise * generator.standard_normal((n, d))
    return rows, odeco.Components(np.full(k, 2 / k), means)


@pytest.mark.parametrize("cosine", [0.0, 0.6])
@pytest.mark.parametrize("source", ["passes", "stream", "pushed"])
def test_the_number_of_components_of_any_cosine_is_found(source, cosine):
    rows, truth = mixture(8000, 8, cosine=cosine)
    if source == "passes":
        result = odeco.decompose_stream(rows, "auto", rng=0)
    elif source == "stream":
        result = odeco.decompose_stream(iter([rows]), "auto", rng=0)
    else:
        result = odeco.OnlineDecomposer("auto", rng=0).partial_fit(rows).result()
    assert result.rank_evidence.rank == result.weights.size == 3
    assert result.rank_evidence.confidence >= SURE
    matched = odeco.match(result, truth)
    assert np.all(matched.angles < 5 * result.angle_errors[matched.found_index])
    assert "does not decide" not in result.verdict


@pytest.mark.slow
def test_components_are_counted_where_the_core_is_smaller_than_the_moment():
    """With 60 columns the core is of 50 vectors.

    Rows are sorted, so that a part of them that is not spread over all would miss some components.
    """
    rows, _ = mixture(4000, 60, 2, cosine=0.4, noise=0.05, seed=1)
    result = odeco.decompose_stream(rows[np.argsort(rows[:, 0])], "auto", rng=0)
    assert result.weights.size == 2
    assert result.rank_evidence.confidence >= SURE


@pytest.mark.slow
def test_the_largest_number_that_can_be_told_apart_at_order_4_is_not_said_with_confidence():
    """Without noise, rows have two dimensions, in which a fourth moment shows two components at
    most.
    """
    rows, _ = mixture(4000, 50, 2, cosine=0.4, noise=0.0, seed=1)
    result = odeco.decompose_stream(rows, "auto", order=4, rng=0)
    assert result.weights.size == 2
    assert result.rank_evidence.confidence < SURE
    assert 3 in result.rank_evidence.candidates


@pytest.mark.parametrize("source", ["passes", "stream", "pushed"])
def test_noise_alone_is_refused(source):
    """Each judgement is wrong with a chance of 5 in 1,000."""
    rows = np.random.default_rng(0).standard_t(5, size=(3000, 8))
    text = "At least one component must stand clear of the noise"
    if source == "pushed":
        online = odeco.OnlineDecomposer("auto", rng=0).partial_fit(rows)
        with pytest.raises(odeco.RankError, match=text):
            online.result()
        return
    with pytest.raises(odeco.RankError, match=text):
        odeco.decompose_stream(rows if source == "passes" else iter([rows]), "auto", rng=0)


@pytest.mark.slow
def test_a_number_in_doubt_is_never_said_with_confidence():
    """Few rows in much noise: at a confidence of 0.95 one of 20 may be wrong, so that of 5 two
    would be a mistake.
    """
    wrong, doubted = 0, 0
    for seed in range(5):
        rows, truth = mixture(2000, 6, 3, cosine=0.5, noise=0.4, seed=seed, heavy=True)
        try:
            evidence = odeco.decompose_stream(rows, "auto", rng=seed).rank_evidence
        except odeco.RankError:
            continue
        wrong += evidence.confidence >= SURE and evidence.rank != truth.n_components
        if evidence.confidence < SURE:
            doubted += 1
            assert len(evidence.candidates) > 1
    assert wrong < 2
    assert doubted


def test_what_half_a_step_is_worth_is_what_it_takes_off_the_squared_misfit():
    generator = np.random.default_rng(0)
    cores = np.array([symmetrize(core) for core in generator.standard_normal((4, 5, 5, 5))])
    old, new = (odeco.Components(generator.standard_normal(k), unit(generator, k)) for k in (2, 3))
    worth = HeldOut(cores[0], cores[1:], 5, 0).worth(old, new)
    half_way = (old.to_dense() + new.to_dense()) / 2
    expected = [DenseTensor(core - old.to_dense()).squared_norm() for core in cores[1:]]
    expected -= np.array([DenseTensor(core - half_way).squared_norm() for core in cores[1:]])
    np.testing.assert_allclose(worth, expected, rtol=1e-12)


def unit(generator, k):
    vectors = generator.standard_normal((5, k))
    return vectors / np.linalg.norm(vectors, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("sure", [True, False])
def test_cuts_and_checkpoints_change_no_bit_of_a_pushed_run(sure, tmp_path):
    """With doubt it searches again, each time with twice the rows: 1,000, 2,000, 4,000."""
    rows, _ = mixture(4000, 5, 2, noise=0.0 if sure else 0.9, seed=2)
    settings = {"rng": 3}
    pulled = odeco.decompose_stream(iter([rows]), "auto", **settings)
    assert (pulled.rank_evidence.confidence >= SURE) == sure
    online = odeco.OnlineDecomposer("auto", **settings)
    for piece in np.array_split(rows, 13):
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(piece)
    assert bool(online.progress.n_rows_needed) != sure
    same_result(online.result(), pulled)


def test_a_pass_over_a_file_that_is_stopped_goes_on_to_the_same_bits(tmp_path):
    rows, _ = mixture(2000, 51, 2, noise=0.0)
    np.save(tmp_path / "rows.npy", rows)
    whole = odeco.decompose_stream(tmp_path / "rows.npy", "auto", rng=0)
    path = tmp_path / "run.ckpt"
    for n_rows in (1000, 3000, 5000):  # while it takes its sample, and in both passes that refine

        def stop(progress, after=n_rows):
            if progress.n_rows >= after:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            odeco.decompose_stream(
                tmp_path / "rows.npy", "auto", rng=0, checkpoint=path, callback=stop
            )
    same_result(
        odeco.decompose_stream(tmp_path / "rows.npy", "auto", rng=0, checkpoint=path), whole
    )


def same_result(one, other):
    assert np.array_equal(one.vectors, other.vectors)
    assert np.array_equal(one.weights, other.weights)
    for name in ("rank", "confidence", "candidates"):
        assert getattr(one.rank_evidence, name) == getattr(other.rank_evidence, name)
    for name in ("weights", "noise_levels", "chances"):
        assert np.array_equal(getattr(one.rank_evidence, name), getattr(other.rank_evidence, name))


@pytest.mark.parametrize("exponent", [-60, 60])
def test_the_number_does_not_depend_on_the_unit_of_the_rows(exponent):
    rows, _ = mixture(1000, 4, 2, noise=0.1)
    plain = odeco.decompose_stream(rows, "auto", rng=0)
    scaled = odeco.decompose_stream(np.ldexp(rows, exponent), "auto", rng=0)
    assert scaled.rank_evidence.rank == plain.rank_evidence.rank
    assert scaled.rank_evidence.confidence == pytest.approx(
        plain.rank_evidence.confidence, rel=1e-6
    )
    unscaled = np.ldexp(scaled.rank_evidence.weights, -3 * exponent)
    np.testing.assert_allclose(unscaled, plain.rank_evidence.weights, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"method": "entries"},
            "n_components='auto' takes method='core', which can hold out rows. Got method=",
        ),
        (
            {"epsilon": 1.0, "delta": 1e-9, "norm_bound": 1.0, "batch_size": 9},
            "A private run needs `n_components` as an int",
        ),
    ],
)
def test_what_cannot_count_says_so(settings, text):
    with pytest.raises(ValueError, match=text):
        odeco.OnlineDecomposer("auto", **settings)


@pytest.mark.parametrize(("weight", "rank"), [(0.8, 4), (0.001, 3)])
def test_in_doubt_a_component_is_kept_where_such_are_to_be_expected(weight, rank):
    """A fourth component is worth 2.3 standard errors in rows held out, too little to be beyond
    chance.

    Beside three that are just as strong it is more likely there than not; a thousand times weaker
    it is not.
    """
    deviations = np.random.default_rng(0).standard_normal(16)
    deviations = (deviations - deviations.mean()) / deviations.std(ddof=1)
    seen = weight / 4 + 0.75 * weight * (1 + deviations * np.sqrt(16) / 2.3)

    def core(last):
        return np.einsum("i,ia,ib,ic->abc", [1.1, 1.0, 0.9, last], *[np.eye(4)] * 3)

    evidence, found = select_on_held_out(HeldOut(core(weight), [core(each) for each in seen], 4, 0))
    assert evidence.rank == found.n_components == rank
    assert evidence.confidence < SURE
    assert set(evidence.candidates) == {3, 4}


def test_too_few_rows_to_judge_are_refused():
    rows, _ = mixture(31)
    for data in (rows, iter([rows])):
        with pytest.raises(
            odeco.RankError,
            match=r"There are 31 rows, too few for that\. Pass n_components as an int\.",
        ):
            odeco.decompose_stream(data, "auto")
    with pytest.raises(odeco.RankError):
        odeco.decompose_stream(np.zeros((1000, 4)), "auto")


def test_the_command_says_how_many_and_how_sure(tmp_path, capsys):
    rows, _ = mixture(2000, 5, 2, noise=0.0)
    np.save(tmp_path / "rows.npy", rows)
    arguments = ["decompose", "--rows", str(tmp_path / "rows.npy"), "-k", "auto"]
    assert run([*arguments, "--out", str(tmp_path / "result.npz")]) == 0
    assert "rank 2 selected; confidence that it is right: " in capsys.readouterr().out
    assert odeco.load_result(tmp_path / "result.npz").rank_evidence.rank == 2
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rank_evidence"]["candidates"] == [2]

"""The strongest adversary against whole runs: he sees all that is released, and all that comes
back.

He has two neighbours that differ as much as neighbours can: one row of three is e or −e, the others
are zero, in one dimension, where every question shows that row in full. He runs a whole
decomposition on one of them, and plays the same releases back to a run on the other. If anything
but the exact answers differs between the two, something got out without noise. Otherwise the
likelihood ratio of the transcript tells the neighbours apart as well as anything can. For topics
one document of ninety shares its words with the others, or has none in common with them; for
answers and for sequences one of thirty does.
"""

from __future__ import annotations

import warnings
from functools import partial
from unittest import mock

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri
from sealing import log_likelihood_ratio, plain, play_back, record

import odeco
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.privacy import gdp_mu
from odeco.privacy.audit import _upper_bound
from odeco.privacy.noise import SeededNoiseForTests
from odeco.private import decompose_privately
from odeco.private import recipe as _recipe
from odeco.private.mechanisms import MECHANISMS

#: μ is 2.2 here, so that each of the two errors has a rate of 0.13 and few runs tell much.
BUDGET = {"epsilon": 7.0, "delta": 1e-2}
MU = gdp_mu(**BUDGET)
CONFIDENCE = 0.999
ROWS = np.array([[[1.0], [0.0], [0.0]], [[-1.0], [0.0], [0.0]]])
DOCUMENTS = np.tile([12.0, 12.0, 12.0, 0.0, 0.0, 0.0], (2, 90, 1))
DOCUMENTS[1, 0] = DOCUMENTS[1, 0, ::-1]
#: The second moment of a mixture shows most of a row that is turned by a right angle.
TURNED = np.zeros((2, 3, 2))
TURNED[0, 0, 0] = TURNED[1, 0, 1] = 1.0
#: Counts of norms show a row whose norm changes, and not one that is turned.
FAR = np.array([[[1.0], [0.0], [0.0]], [[100.0], [0.0], [0.0]]])
#: Where the bound is chosen by these counts, the moment must show the row too. Rows on one side
#: differ by at most half of what rows on opposite sides do, and by nothing if both are clipped to
#: one length. These two are opposite, in two bins of counts, and longer than nearly every bound
#: that the noisy counts of three rows suggest: 2B³ apart.
OPPOSITE = np.array([[[2.0**126], [0.0], [0.0]], [[-(2.0**127)], [0.0], [0.0]]])
#: One of the edges of a small graph is there or not.
GRAPHS = np.zeros((2, 4, 4))
GRAPHS[1, 0, 1] = 1.0
#: Answers to six questions, or sequences of six symbols: one of thirty says all zeros, or all ones.
RECORDS = np.zeros((2, 30, 6))
RECORDS[1, 0] = 1.0


def decomposed(mechanism, **settings):
    def run(rows):
        return decompose_privately(
            rows,
            1,
            **BUDGET,
            unit="record",
            mechanism=mechanism,
            rng=0,
            **({"norm_bound": 1.0} | settings),
        )

    return run


def pushed(method, n_batches, **settings):
    """Return a stream whose first batch holds the row; the batches that follow are zeros."""

    def run(rows):
        online = odeco.OnlineDecomposer(
            1, **BUDGET, method=method, batch_size=3, norm_bound=1.0, rng=0, **settings
        )
        online.partial_fit(rows)
        return online.partial_fit(np.zeros((3 * (n_batches - 1), 1))).result()

    return run


def topics(counts):
    model = TensorLDA(1, **BUDGET, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that topics are deep in noise depends on what was released
        model.fit(counts)
    return model.topic_word_, model.diagnostics_


def mixture(rows):
    model = TensorMixture(1, **BUDGET, norm_bound=1.0, random_state=0).fit(rows)
    return model.weights_, model.means_, model.covariances_, model.summary()


def sources(rows):
    model = TensorICA(**BUDGET, norm_bound=1.0, random_state=0).fit(rows)
    return model.components_, model.mixing_, model.mean_, model.information_, model.summary()


def communities(graph):
    # The ε of flips whose noise has the same μ.
    epsilon = float(log_ndtr(MU / 2) - log_ndtr(-MU / 2))
    model = Communities(2, epsilon=epsilon, random_state=0).fit(graph)
    return model.memberships_, model.block_matrix_, model.profiles_, model.labels_, model.summary()


def classes(answers):
    model = LatentClasses(2, **BUDGET, random_state=0).fit(answers, categories=2)
    return model.class_weights_, model.answer_probabilities_, model.summary()


def synthetic(records):
    """Six columns, or one: then the one release shows a row that is replaced in full."""
    columns = {f"c{place}": column for place, column in enumerate(records.T)}
    schema = {name: [0, 1] for name in columns}
    result = odeco.synthesize(columns, **BUDGET, schema=schema, rng=0)
    table = {name: result.table[name] for name in columns}
    return table, result.errors, result.products, result.summary()


def states(symbols):
    model = TensorHMM(2, emissions="categorical", n_symbols=2, **BUDGET, random_state=0)
    model.fit(symbols.ravel(), lengths=[symbols.shape[1]] * len(symbols))
    return model.startprob_, model.transmat_, model.emissionprob_, model.summary()


#: A whole run with its two neighbours: whoever adds one adds a line.
RUNS = {
    "wang2016": (decomposed("wang2016", n_restarts=2, n_iterations=2), ROWS),
    "joint": (decomposed("joint", n_restarts=2, n_iterations=3), ROWS),
    "input": (decomposed("input"), ROWS),
    "core": (decomposed("core"), ROWS),
    "bound auto": (decomposed("input", norm_bound="auto"), OPPOSITE),
    "bound alone": (lambda rows: odeco.choose_norm_bound(rows, **BUDGET), FAR),
    "subspace": (
        lambda rows: vars(odeco.private_subspace(rows, 1, **BUDGET, norm_bound=1.0)),
        TURNED,
    ),
    "stream, core": (pushed("core", 4), ROWS),
    "stream, power": (pushed("power", 3, n_restarts=2, n_iterations=3), ROWS),
    "stream, entries": (pushed("entries", 1), ROWS),
    "topics": (topics, DOCUMENTS),
    "mixture": (mixture, TURNED),
    "sources": (sources, TURNED),
    "communities": (communities, GRAPHS),
    "classes": (classes, RECORDS),
    "states": (states, RECORDS),
    "synthetic": (synthetic, RECORDS),
    "synthetic, one column": (synthetic, RECORDS[:, :, :1]),
}


@pytest.fixture(autouse=True)
def plan_once():
    """A plan depends on public numbers alone, which are the same in all runs of a mechanism: it is
    made once.
    """
    plans, make = {}, _recipe.choose

    def choose(mechanism, setting):
        known = (mechanism, setting.sensitivities)
        if known not in plans:
            plans[known] = make(mechanism, setting)
        return plans[known]

    with mock.patch.object(_recipe, "choose", choose):
        yield


@pytest.fixture(autouse=True)
def search_briefly():
    """How long classes are searched for after the releases is nothing to an attacker who has
    these.
    """
    with mock.patch.multiple("odeco.models.lca.pairs", _N_PAIRS_SEARCH=2, _N_SEARCH=2):
        yield


def certified_mu(run, pair, n_runs, noise_share=1.0):
    """Return a lower bound on μ with the confidence above, having made sure that nothing else
    differs.
    """
    errors = []
    for number, (own, other) in enumerate((pair, pair[::-1])):
        noise, mistakes = Shorter(SeededNoiseForTests(number), noise_share), 0
        for _ in range(n_runs):
            result, seen = record(partial(run, own), noise)
            played, unseen = play_back(partial(run, other), seen.released)
            assert seen.scales == unseen.scales
            assert plain(result) == plain(played)
            mistakes += log_likelihood_ratio(seen, unseen) > 0
        errors.append(_upper_bound(mistakes, n_runs, (1 - CONFIDENCE) / 2))
    return float(-ndtri(errors[0]) - ndtri(errors[1]))


class Shorter:
    """Noise that is a share of what it should be."""

    def __init__(self, noise, share):
        self.noise, self.share = noise, share

    def gaussian(self, shape, scale):
        return self.share * self.noise.gaussian(shape, scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_whole_run_tells_neighbours_apart_and_gives_away_no_more_than_it_claims(name):
    assert 0 < certified_mu(*RUNS[name], 60) <= MU


# An error has the rate 0.13, so from 1,000 runs its standard error is 0.011, and its upper bound
# lies at 0.17: μ is certified to 1.9, or 0.85 of it, give or take 0.03. Models are left out: their
# pairs are not the worst for each of their releases. It takes two minutes for all.
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name for name in RUNS if name not in ("topics", "mixture", "sources", "classes", "states")],
)
def test_a_whole_run_gives_away_nearly_what_it_claims(name):
    assert 0.75 * MU < certified_mu(*RUNS[name], 1_000) <= MU


@pytest.mark.slow
def test_noise_of_a_quarter_of_the_size_is_noticed():
    # μ is then 9, and no error is expected in 60 runs: the upper bound on its rate is 0.12, and μ
    # is at least 2.3.
    assert certified_mu(*RUNS["joint"], 60, noise_share=0.25) > MU


def test_an_exact_number_in_the_result_is_noticed():
    def leaks(rows):
        return RUNS["joint"][0](rows), float(rows[0, 0])

    with pytest.raises(AssertionError):
        certified_mu(leaks, ROWS, 60)


def test_every_mechanism_that_can_be_attacked_here_is():
    # The second moment of e and of −e is the same, so that one release of "subspace" shows nothing
    # of this pair; it is attacked by the test of information flow and by the brute-force tests of
    # its two sensitivities.
    assert set(MECHANISMS) - {"subspace"} <= set(RUNS)

"""Choose a vocabulary from private documents: noisy votes for words, and a threshold that hides
rare words.

A word that only one document contains would reveal that document, however noisy its count is: the
word itself is the secret. Only words whose noisy votes reach a threshold are released. A word of
one document reaches it with probability at most δ'.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import check_count, check_number
from odeco._util.types import FloatArray
from odeco.errors import VocabularyError
from odeco.models.lda.vocabulary import (
    STOP_WORDS,
    CountedWords,
    Words,
    count_words,
    prune_words,
    select_words,
)
from odeco.privacy.calibration import (
    check_delta,
    check_delta_for,
    check_epsilon,
    epsilon_of,
    gdp_mu,
)
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import WordVotes
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport

#: Of a guarantee (ε, δ), this share of δ goes to the threshold. A tenth costs the noise of
#: everything else less than a hundredth, and the threshold grows with √log 1/δ' only.
DELTA_SHARE = 0.1


#: Of what is left, this share of μ² goes to the vocabulary, and the rest to learning.
SHARE = 0.2


#: By default no more words than this are kept.
MOST_WORDS = 10_000


def left_for_learning(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the guarantee that is left for topics after a vocabulary with the usual shares of μ²
    and δ.
    """
    left = (1 - DELTA_SHARE) * check_delta(delta)
    return epsilon_of(math.sqrt(1 - SHARE) * gdp_mu(check_epsilon(epsilon), left), left), left


@dataclass(frozen=True, eq=False)
class PrivateVocabulary:
    """Words that were chosen under differential privacy. All of it may be published.

    Attributes
    ----------
    words : array of str
        The words, sorted.
    votes : array
        The noisy votes for each: Σ 1/√s over the units that hold it, s being the number of
        different words of a unit.
    threshold, scale : float
        The threshold of noisy votes, and the standard deviation of the noise.
    privacy : PrivacyReport
        The guarantee that the vocabulary is a part of, and its cost.
    """

    words: Words
    votes: FloatArray
    threshold: float
    scale: float
    privacy: PrivacyReport

    def left(self, guarantee: Guarantee) -> Guarantee:
        """Return the guarantee that is left for learning, if (ε, δ) is that of vocabulary and
        topics together.

        With δ' for the threshold and μ for the votes, it is the δ − δ' and the ε of √(gdp_mu(ε, δ −
        δ')² − μ²).
        """
        epsilon = guarantee.epsilon
        delta = guarantee.delta
        spent = sum(charge.delta for charge in self.privacy.charges)
        squares = gdp_mu(epsilon, delta - spent) ** 2 - self.privacy.mu**2 if delta > spent else 0.0
        if not squares > 0:
            raise ValueError(
                "`epsilon` and `delta` must be more than the vocabulary has cost, mu = "
                f"{self.privacy.mu:.4g} and delta = {spent:.4g}. Got ({epsilon!r}, {delta!r}). "
                "Pass those that it was chosen with."
            )
        return replace(
            guarantee, epsilon=epsilon_of(math.sqrt(squares), delta - spent), delta=delta - spent
        )

    def combined(self, learnt: PrivacyReport, guarantee: Guarantee) -> PrivacyReport:
        """Return the guarantee (ε, δ) of vocabulary and topics together, from one ledger with all
        that was released.
        """
        charges = (*self.privacy.charges, *learnt.charges)
        spent = math.fsum(charge.delta for charge in charges)
        ledger = Ledger(gdp_mu(guarantee.epsilon, guarantee.delta - spent), delta_limit=spent)
        for charge in charges:
            ledger.charge(**charge.to_fields())
        return PrivacyReport.of(
            Releaser(ledger),
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            unit=learnt.unit,
            neighbours=self.privacy.neighbours,
            mechanism=f"{self.privacy.mechanism}; {learnt.mechanism}",
            private=self.privacy.private and learnt.private,
        )

    def check_fits(self, *, n_words: int, unit: str, neighbours: str) -> None:
        """Raise unless topics over these words, for this unit and these neighbours, can share a
        guarantee with it.
        """
        own = (self.words.size, self.privacy.unit, self.privacy.neighbours.split(";")[0])
        given = (n_words, unit, neighbours.split(";")[0])
        if own != given:
            raise ValueError(
                "Topics must be learnt of the words of their vocabulary, and protect the same "
                f"unit from the same change. Got {given[0]:,} words ({given[1]}: {given[2]}) and "
                f"a vocabulary of {own[0]:,} words ({own[1]}: {own[2]}). Count its words, and "
                "pass the same groups and neighbour_relation to both."
            )


def keep_words(
    counted: CountedWords,
    *,
    epsilon: float | None,
    delta: float | None,
    max_words: int,
    stop_words: Iterable[str],
    min_documents: int,
    max_share: float,
    **private: Any,
) -> tuple[CountedWords, PrivateVocabulary | None]:
    """Return the counts of the words to learn from: pruned, or in a private model chosen by noisy
    votes.

    `private` arguments are those of `choose_vocabulary_privately`. The vocabulary is None without
    privacy.
    """
    limits: Any = {"max_words": max_words, "stop_words": stop_words}
    if epsilon is None or delta is None:
        return prune_words(
            counted, min_documents=min_documents, max_share=max_share, **limits
        ), None
    chosen = choose_vocabulary_privately(counted, epsilon=epsilon, delta=delta, **limits, **private)
    return select_words(counted, chosen.words.tolist()), chosen


def choose_vocabulary_privately(
    documents: Iterable[str] | CountedWords,
    *,
    epsilon: float,
    delta: float,
    share: float = SHARE,
    groups: Any = None,
    words_per_unit: int = 1000,
    max_words: int = MOST_WORDS,
    stop_words: Iterable[str] = STOP_WORDS,
    neighbour_relation: Literal["replace", "add_remove"] = "replace",
    ledger: LedgerFile | str | os.PathLike[str] | None = None,
    noise: NoiseSource | None = None,
) -> PrivateVocabulary:
    """Choose the words that many documents contain, under differential privacy for a document (or
    user).

    Parameters
    ----------
    documents : iterable of str, or CountedWords
        The documents. Their number is public. One that is no text counts as empty, without a
        message.
    epsilon, delta : float
        The guarantee of vocabulary and topics together. Learn the topics with the same ε and δ and
        with this vocabulary, ``TensorLDA(k, epsilon=ε, delta=δ).fit(counts, vocabulary=chosen)``:
        they get what is left.
    share : float
        Share of μ² that goes to the vocabulary; 1 if nothing else is to be released.
    groups : array of labels, optional
        The user of each document; this is public. The unit of privacy is then the user.
    words_per_unit : int
        A unit with more distinct words than this votes for this number of them.
    max_words : int
        If more words than this pass, those with most votes are kept.
    stop_words : iterable of str
        These words are left out before the vote. The list must not come from the documents.
    neighbour_relation : {"replace", "add_remove"}
        The change of one unit between neighbours: it is replaced by any other, or blanked.
    ledger : LedgerFile or path, optional
        The budget of all runs on these documents together; its `delta_limit` must leave room for
        the threshold.
    noise : NoiseSource, optional
        Where the noise comes from; by default from the operating system.

    Notes
    -----
    **Who votes for what.** A unit with s ≤ c = `words_per_unit` words gives each of them 1/√s. One
    with more gives 1/√c to c of them: those whose hash, mixed with the sum of the hashes of all its
    words, is smallest. That is as good as drawn by chance, and depends on the words of this unit
    and on nothing else: not on its place, not on others.

    **Proof.** Fix two neighbours D and D', which differ in one unit. Words that other units vote
    for, or that the unit votes for in both, have votes in both: on these, votes are a vector to
    which the unit adds u or u', both without negative entries and of norm at most 1. Blanking it
    moves the vector by |u| ≤ 1; replacing it by |u − u'| ≤ √2, since ⟨u, u'⟩ ≥ 0. Votes with noise
    of σ on all of these words are a Gaussian mechanism of μ = 1/σ, or √2/σ, and the threshold is
    post-processing. For the other words the unit alone votes: s ≤ c words of D with 1/√s votes
    each, at most, and likewise of D'. (Others may hold such a word too and vote for other words of
    theirs.) One of them passes with probability 1 − Φ((T − 1/√s)/σ)ˢ at most, and T is chosen such
    that this is at most δ' for every s ≤ c. The noise on them is apart from that on the others. So
    what is released is a function of the Gaussian mechanism and of a second one, which shows
    nothing but for a probability of δ' under either neighbour: the two laws of it are apart by at
    most δ' in total variation, so it is (0, δ')-differentially private. Together with anything else
    that is charged to one ledger this gives (ε, δ(ε) + δ'), see `Ledger`.

    **Rounding.** Votes are rounded down to multiples of the grid of the noise, so sums are exact,
    in any order, and rounding to the grid moves nothing: what is declared is the sensitivity of
    what is computed. Two steps of the grid are added to T for the rounding of the noise.

    References
    ----------
    Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin, *Differentially private set union*, 2020,
    arXiv:2002.09745: the weights 1/√s and the threshold. Desfontaines, Voss, Gipson and Mandayam,
    *Differentially private partition selection*, 2022, arXiv:2006.03684.

    Examples
    --------
    >>> texts = ["red apple", "green apple", "my secret"] * 1000
    >>> texts[17] = "a password"
    >>> chosen = choose_vocabulary_privately(texts, epsilon=4.0, delta=1e-8)
    >>> chosen.words.tolist()
    ['apple', 'green', 'red', 'secret']
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    share = 1.0 if share == 1 else check_number("share", share, 0, 1)
    most = check_count("max_words", max_words)
    if isinstance(documents, str):
        raise TypeError(
            "`documents` must be a sequence of texts. Got one text. Put it into a list."
        )
    if not isinstance(documents, CountedWords):
        # What is no text counts as an empty document: an error would reveal something about a
        # private one.
        texts = (each if isinstance(each, str) else "" for each in documents)
        documents = count_words(texts, allow_empty=True)
    held = WordVotes(
        documents.counts,
        documents.words,
        groups=groups,
        words_per_unit=words_per_unit,
        stop_words=stop_words,
        neighbour_relation=neighbour_relation,
    )
    check_delta_for(delta, held.n_units, held.unit)
    leak = (
        DELTA_SHARE * delta * (1 - 2.0**-30)
    )  # a ledger that has kept this share must not refuse because of rounding
    limit = math.sqrt(share) * gdp_mu(epsilon, delta - leak)
    budget = as_ledger(ledger, unit=held.unit, neighbours=neighbour_relation)
    releaser = Releaser(
        Ledger(limit, delta_limit=leak, within=budget), SecureNoise() if noise is None else noise
    )
    scale = held.sensitivity / limit
    threshold = held.threshold(scale, leak)
    words, votes = releaser.release_above(
        f"words whose noisy votes reach {threshold:.4g}",
        lambda: held.votes(scale),
        sensitivity=held.sensitivity,
        scale=scale,
        threshold=threshold,
        delta=leak,
    )
    if words.size == 0:
        raise VocabularyError(
            f"At least one word must have {threshold:.4g} votes, so that it can be released "
            f"without revealing a {held.unit}. None has, of {held.n_units:,} {held.unit}s. Raise "
            "epsilon, pass more documents, or pass a vocabulary that comes from elsewhere."
        )
    kept = np.sort(np.argsort(-votes, kind="stable")[:most])
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=held.unit,
        neighbours=held.neighbours,
        mechanism="words whose noisy votes reach a threshold",
    )
    return PrivateVocabulary(words[kept], votes[kept], threshold, scale, report)

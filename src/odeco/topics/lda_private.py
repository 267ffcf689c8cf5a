"""A TensorLDA with ε and δ: what it promises, and how it learns from documents at once and in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odeco._arguments import check_count
from odeco.privacy import Guarantee, check_delta, check_epsilon
from odeco.topics.bounded_counts import BoundedCounts
from odeco.topics.counts import as_counts
from odeco.topics.fitted import FittedTopics
from odeco.topics.lda_settings import LdaSettings
from odeco.topics.learn_at_once import learn_public
from odeco.topics.learn_privately import learn_privately
from odeco.topics.learn_privately_in_batches import PrivateTopicStream, learn_batch_privately
from odeco.topics.private_topics import PublicTopics
from odeco.topics.private_vocabulary import PrivateVocabulary

if TYPE_CHECKING:
    from odeco.topics.lda import TensorLDA


def fit_privately(
    model: TensorLDA, counts: Any, groups: Any, settings: LdaSettings, vocabulary: PrivateVocabulary | None, seed: int
) -> FittedTopics:
    """Learn with all of ε and δ, or with what a private vocabulary has left of them."""
    held = BoundedCounts(counts, groups=groups, neighbour_relation=model.neighbour_relation)
    n_components, guarantee = _promised(model)
    left = guarantee
    if vocabulary is not None:
        vocabulary.check_fits(n_words=held.n_words, unit=model.unit, neighbours=held.neighbours)
        epsilon, delta = vocabulary.left(guarantee.epsilon, guarantee.delta)
        left = replace(guarantee, epsilon=epsilon, delta=delta)
    fitted = learn_privately(
        held,
        n_components,
        concentration=settings.concentration,
        guarantee=left,
        public=_public_topics(model, settings, n_components, seed),
        seed=seed,
    )
    if vocabulary is None or fitted.privacy is None:
        return fitted
    return replace(fitted, privacy=vocabulary.joined(fitted.privacy, guarantee.epsilon, guarantee.delta))


def next_private_stream(
    model: TensorLDA, before: PrivateTopicStream | None, counts: Any, settings: LdaSettings
) -> PrivateTopicStream:
    """Return the stream after one more batch; a batch is asked with the whole budget."""
    n_components, guarantee = _promised(model)
    seed = model._draw_seed() if before is None else before.seed
    return learn_batch_privately(
        before,
        BoundedCounts(counts, neighbour_relation=model.neighbour_relation),
        n_components,
        concentration=settings.concentration,
        guarantee=guarantee,
        forget=settings.forget,
        public=None if before is not None else _public_topics(model, settings, n_components, seed),
        seed=seed,
    )


def _promised(model: TensorLDA) -> tuple[int, Guarantee]:
    """Return the number of topics and the guarantee that a private model is asked for."""
    n_components = min(check_count("n_components", model.n_components), model.n_features_in_)
    return n_components, Guarantee(check_epsilon(model.epsilon), check_delta(model.delta), model.ledger)


def _public_topics(model: TensorLDA, settings: LdaSettings, n_components: int, seed: int) -> PublicTopics | None:
    if model.public is None:
        return None
    counts = as_counts(model.public, model.n_features_in_)
    return PublicTopics(learn_public(counts, replace(settings, n_components=n_components), seed=seed))

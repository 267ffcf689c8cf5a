"""A TensorLDA and documents that lie on a cluster: checked, learnt from and inferred where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odeco.topics.fitted import FittedTopics
from odeco.topics.lda_settings import LdaSettings, Tell, check_settings
from odeco.topics.learn_at_once import learn_at_once

if TYPE_CHECKING:
    from odeco.topics.lda import TensorLDA


def rows_on_cluster(model: TensorLDA, X: Any, client: Any = None, *, reset: bool = False) -> Any:
    """Return documents on a cluster; their counts are checked where they are."""
    from odeco.dask import as_cluster_rows  # Dask takes a second, and may be missing

    rows = as_cluster_rows(X, client)
    if reset:
        model.__dict__.pop("feature_names_in_", None)
        model.n_features_in_ = rows.n_features
    elif rows.n_features != model.n_features_in_:
        raise ValueError(
            f"X has {rows.n_features} features, but TensorLDA is expecting {model.n_features_in_} features as input."
        )
    return rows


def learn_on_cluster(rows: Any, settings: LdaSettings, *, seed: int, tell: Tell) -> FittedTopics:
    """Learn topics from documents on a cluster; they have the same bits as on one machine."""
    from odeco.topics.corpus_on_cluster import CorpusOnCluster

    return learn_at_once(CorpusOnCluster(rows, settings), settings, seed=seed, tell=tell)


def proportions_there(model: TensorLDA, X: Any) -> Any:
    """Return the proportions of topics in documents on a cluster, as a Dask array."""
    from odeco.topics.infer_on_cluster import proportions_on_cluster

    n_rounds = check_settings(model).n_inference_iterations
    return proportions_on_cluster(rows_on_cluster(model, X), model._fitted_topics("topic_word_"), n_rounds)


def likelihood_there(model: TensorLDA, X: Any) -> tuple[float, float]:
    """Return the log-likelihood of the words of documents on a cluster, and how many words they have."""
    from odeco.topics.infer_on_cluster import likelihood_on_cluster

    n_rounds = check_settings(model).n_inference_iterations
    return likelihood_on_cluster(rows_on_cluster(model, X), model._fitted_topics("topic_word_"), n_rounds)

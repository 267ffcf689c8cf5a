"""Topics of word counts, or of texts, that the workers of a cluster read: sums, words and a few documents come here."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.cli._faults import advice
from odeco.cli._output import note
from odeco.cli._topics_fit import Learnt
from odeco.cli._topics_input import Corpus, Show, read_stop_words, read_words
from odeco.dask import as_cluster_rows
from odeco.errors import VocabularyError
from odeco.models import TensorLDA, summarise_topics
from odeco.sources import as_source
from odeco.topics.vocabulary import CountedWords, numbered

_COUNTS = (".npz", ".npy", ".parquet", ".arrow", ".feather")


def learn_on_cluster(
    files: tuple[Path, ...], n_components: Any, given: dict[str, Any], client: Any, show: Show
) -> Learnt:
    """Learn topics of the word counts in files, all of whose columns are words that count, or of a column of texts."""
    if given["column"] is not None:
        rows, words = _counted(files, given, client)
    else:
        others = [str(path) for path in files if path.suffix not in _COUNTS]
        if others:
            raise click.UsageError(
                f"With --scheduler the FILEs must hold word counts: {', '.join(_COUNTS)}; or texts in a --column of "
                f".parquet files. Got {others[0]}."
            )
        rows = as_cluster_rows([str(path) for path in files] if len(files) > 1 else str(files[0]), client)
        words = _words_of(files, given["vocabulary"], rows.n_features)
    note(f"{rows.n_rows:,} documents, {rows.n_features:,} words, on a cluster")
    model = TensorLDA(n_components, refine=given["refine"], random_state=given["seed"], n_jobs=given["threads"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, callback=show, words=words, cut=None if given["column"] is None else given["cut"])
    told = tuple(dict.fromkeys(advice(each.message) for each in caught if isinstance(each.message, UserWarning)))
    summary = summarise_topics(model, words, None, seed=given["seed"], advice=told)
    kept = CountedWords(rows, words, rows.n_features)
    return Learnt(model, summary, Corpus(kept), kept)


def _counted(files: tuple[Path, ...], given: dict[str, Any], client: Any) -> tuple[Any, Any]:
    """Let the workers count the words of a column of texts."""
    others = [str(path) for path in files if path.suffix != ".parquet"]
    if others:
        raise click.UsageError(f"With --scheduler, --column is one of .parquet files. Got {others[0]}.")
    from odeco.topics.texts_on_cluster import count_words_on_cluster

    column = given["column"]
    frame = import_module("dask.dataframe").read_parquet([str(path) for path in files], columns=[column])
    return count_words_on_cluster(
        frame[column],
        None if given["vocabulary"] is None else read_words(given["vocabulary"], given["cut"]),
        min_documents=given["min_documents"],
        max_share=given["max_share"],
        max_words=given["max_words"],
        stop_words=read_stop_words(given["stop_words"]),
        cut=given["cut"],
        client=client,
    )


def _words_of(files: tuple[Path, ...], path: Path | None, n_words: int) -> Any:
    """Return the names of the columns: those of a list, of the first file, or their numbers."""
    first = as_source(str(files[0]))
    found: Any = getattr(first, "columns", None)
    if path is not None:
        found = read_words(path)
    elif files[0].suffix == ".npz" and files[0].exists():
        with np.load(files[0], allow_pickle=False) as archive:
            found = archive["vocabulary"] if "vocabulary" in archive.files else None
    words = numbered(n_words) if found is None else np.array(found, dtype=np.str_)
    if words.shape != (n_words,):
        raise VocabularyError(
            f"There must be one word for each of the {n_words:,} columns. Got {words.size:,}. Pass --vocabulary FILE "
            "with one a line."
        )
    return words

"""The registry of models: what ``odeco learn``, ``apply``, ``plan``, ``report`` and ``info`` know
of each.

Estimators are imported when they are needed: scikit-learn takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class RegisteredModel:
    """A model of the command line.

    Attributes
    ----------
    command : str
        Its sub-command of ``odeco learn``.
    kind : str
        What its files are called (`Estimator._KIND`).
    module, estimator : str
        The module and the name of its estimator.
    data : str
        Its kind of input, a key of `odeco.cli.inputs.INPUTS`.
    component, components : str
        What a component is called, and several.
    summary, text : str
        What it does, in a line; and further text for its help.
    examples : tuple of str
        Commands, without ``odeco learn``.
    labels : str
        The method, or the attribute, that gives what ``--labels`` writes.
    shares : bool
        Whether labels are shares of components, of which the largest is named too.
    plan : str
        The function of `odeco.models` that plans a private fit; without one there is no private
        model.
    planned : dict of str to str
        The options of ``odeco plan`` that the plan needs, with the names of its arguments.
    """

    command: str
    kind: str
    module: str
    estimator: str
    data: str
    component: str
    components: str
    summary: str
    text: str = ""
    examples: tuple[str, ...] = ()
    labels: str = "predict_proba"
    shares: bool = True
    plan: str = ""
    planned: dict[str, str] = field(default_factory=dict)

    def load_estimator(self) -> Any:
        """Return the class of the estimator."""
        return getattr(import_module(self.module), self.estimator)

    def load_plan(self) -> Any:
        """Return the function that plans a private fit."""
        return getattr(import_module("odeco.models"), self.plan)

    @property
    def is_private(self) -> bool:
        """Whether the command fits private models: it reads no private graphs."""
        return bool(self.plan) and self.data != "graph"


_PLAN = (
    "A plan is printed first, from public numbers; on a terminal, you are asked before anything "
    "is spent. "
)

_PRIVATE_ROWS = (
    "With --epsilon, --delta and --norm-bound the model does not reveal any single row. "
    f"{_PLAN}All columns of a private file are read; --header or --no-header says whether the "
    "first line of a CSV file holds names, which are published."
)

_ROWS_PLANNED = {"n_records": "n_rows", "dimension": "n_features"}

_ALL = (
    RegisteredModel(
        command="topics",
        kind="topic model",
        module="odeco.models.lda.estimator",
        estimator="TensorLDA",
        data="documents",
        component="topic",
        components="topics",
        summary="Topics of text: which words occur together, and each topic's share of the text.",
        text="Text is read from .txt and .text (one document per line), .csv and .tsv "
        "(--column), .jsonl and .ndjson "
        "(--column), any of these compressed as .gz, .parquet (--column), a folder of .txt files "
        "(one document per "
        "file), and - for lines of the standard input. Word counts are read from .npz (data, "
        "indices, indptr, shape, "
        "and optionally vocabulary).\n\nA word begins with a letter, has at least two "
        "characters, and is converted to "
        "lower case. With --epsilon and --delta words and topics do not reveal any single "
        "document, or with --groups "
        f"all documents of one user. {_PLAN}",
        examples=(
            "topics reviews.csv --column text -k 20 --out model.npz --report page.html",
            "topics --python-documentation -k auto",
            "topics notes.jsonl --column body -k 10 --epsilon 4 --delta 1e-6",
            "topics notes.txt -k 10 --epsilon 1 --delta 1e-6 --ledger notes.ledger --budget 3",
            (
                "topics '/shared/*.parquet' --column text -k 50 --scheduler tcp://host:8786 --out "
                "model.npz"
            ),
        ),
        labels="transform",
        plan="plan_topics",
        planned={"n_records": "n_units", "dimension": "n_words", "length": "document_length"},
    ),
    RegisteredModel(
        command="mixture",
        kind="mixture",
        module="odeco.models.gmm.estimator",
        estimator="TensorMixture",
        data="table",
        component="cluster",
        components="clusters",
        summary="Clusters of the rows of a table: numbers, categories and counts.",
        text="Columns of texts are categories, and beside them so are numbers with few values; "
        "--kinds says otherwise. Row counters, dates and names are left out. "
        "Values may be missing: empty cells, NA or nulls. " + _PRIVATE_ROWS,
        examples=(
            "mixture customers.csv -k 4 --kinds visits=count,zip=category --report page.html",
            "mixture rows.csv -k 10 --labels clusters.csv --report page.html",
            "mixture rows.npy -k 10 --epsilon 1 --delta 1e-6 --norm-bound 20 --out model.npz",
        ),
        plan="plan_mixture",
        planned=_ROWS_PLANNED,
    ),
    RegisteredModel(
        command="hmm",
        kind="hidden Markov model",
        module="odeco.models.hmm.estimator",
        estimator="TensorHMM",
        data="sequences",
        component="state",
        components="states",
        summary="Hidden states of sequences: a hidden Markov model.",
        text="With --symbol the rows are symbols (texts); without it they are numbers. Symbols "
        "and numbers may be "
        "missing: empty cells, NA or nulls. Rows are grouped by --sequence, "
        "and each sequence is in the order of the table, or of --time. The names of the symbols, "
        "in alphabetical "
        "order, are stored with the model and printed. With --epsilon, --delta and --symbols the "
        "model does not reveal "
        "any single sequence, whatever its length. The symbols and the names of the sequences "
        "are public; a sequence "
        f"with another symbol counts as blank. {_PLAN}A private table is a .csv or .tsv file; "
        f"--header confirms "
        "that its first line holds names.",
        examples=(
            "hmm log.csv --symbol event --sequence user -k 5 --labels states.csv",
            "hmm prices.csv --columns return,volume -k 3 --report page.html",
            (
                "hmm log.csv --symbol event --sequence user -k 5 --epsilon 1 --delta 1e-6 "
                "--symbols open,close --header"
            ),
        ),
        plan="plan_hmm",
        planned={"n_records": "n_sequences", "dimension": "n_symbols", "length": "length"},
    ),
    RegisteredModel(
        command="ica",
        kind="sources model",
        module="odeco.models.ica.estimator",
        estimator="TensorICA",
        data="rows",
        component="source",
        components="sources",
        summary=(
            "Independent sources that rows of numbers mix: ICA; --labels writes the sources of "
            "each row."
        ),
        text=_PRIVATE_ROWS,
        examples=(
            "ica recording.csv -k 4 --labels sources.csv --report page.html",
            "ica rows.npy -k 4 --epsilon 1 --delta 1e-6 --norm-bound auto --out model.npz",
        ),
        labels="transform",
        shares=False,
        plan="plan_sources",
        planned=_ROWS_PLANNED,
    ),
    RegisteredModel(
        command="classes",
        kind="latent classes",
        module="odeco.models.lca.estimator",
        estimator="LatentClasses",
        data="answers",
        component="class",
        components="classes",
        summary="Classes of respondents to questions with few answers each: latent class analysis.",
        text="FILE is a table with names (.csv, .tsv, .parquet, .arrow, .feather), one row per "
        "respondent. Empty cells "
        "are missing answers. With --epsilon, --delta and --answers the model does not reveal "
        "any single respondent. "
        "The list of answers is public: one made from the table would reveal respondents. Any "
        "other answer counts as "
        f"missing. {_PLAN}A private table is a .csv or .tsv file; --header confirms "
        "that its first line holds names.",
        examples=(
            "classes survey.csv -k 4 --drop id --labels classes.csv --report page.html",
            (
                "classes survey.csv -k 4 --epsilon 1 --delta 1e-6 --answers yes,no --header --out "
                "model.npz"
            ),
        ),
        plan="plan_classes",
        planned={"n_records": "n_respondents", "answers": "categories"},
    ),
    RegisteredModel(
        command="communities",
        kind="communities model",
        module="odeco.models.mmsb.estimator",
        estimator="Communities",
        data="graph",
        component="community",
        components="communities",
        summary=(
            "Communities of a graph; a node may belong to several: a mixed-membership block model."
        ),
        text="FILE is a list of edges (.csv, .tsv, .txt: two nodes per line, and a weight if "
        "there is one) or an "
        "adjacency matrix (.npz of SciPy, .mtx).",
        examples=("communities edges.csv -k 8 --labels memberships.csv --report page.html",),
        labels="memberships_",
        plan="plan_communities",
        planned={"n_records": "n_nodes"},
    ),
)

#: Models by their commands.
MODELS = {model.command: model for model in _ALL}


def model_of_kind(kind: str) -> RegisteredModel | None:
    """Return the model whose files are called so; None if there is none."""
    return next((model for model in MODELS.values() if model.kind == kind), None)

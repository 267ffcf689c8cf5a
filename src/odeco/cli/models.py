"""The registry of models: what ``odeco learn`` offers, and whose files ``odeco report`` shows.

The command of a model follows from its entry: options from the parameters that its estimator declares, and from its
kind of input (`odeco.cli.learn_files`). Estimators are imported when they are needed: scikit-learn takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        Its kind of input: "rows", "sequences", "answers" or "graph".
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
        The function of `odeco.models` that plans a private fit; without one the command is not private.
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

    def load_estimator(self) -> Any:
        """Return the class of the estimator."""
        return getattr(import_module(self.module), self.estimator)


_PRIVATE_ROWS = (
    "With --epsilon, --delta and --norm-bound the model does not reveal any single row. A plan is printed first, from "
    "public numbers; on a terminal, you are asked before anything is spent. A private CSV file begins with a line of "
    "names, and all of its columns are read."
)

MODELS = (
    RegisteredModel(
        command="mixture",
        kind="mixture",
        module="odeco.models.gmm.estimator",
        estimator="TensorMixture",
        data="incomplete rows",
        component="cluster",
        components="clusters",
        summary="Clusters of rows of numbers: a mixture of Gaussians.",
        text="Values may be missing: empty cells, NA or nulls. " + _PRIVATE_ROWS,
        examples=(
            "mixture rows.csv -k 10 --labels clusters.csv --report page.html",
            "mixture rows.npy -k 10 --epsilon 1 --delta 1e-6 --norm-bound 20 --out model.npz",
        ),
        plan="plan_mixture",
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
        text="With --symbol the rows are symbols (texts); without it they are numbers. Symbols and numbers may be "
        "missing: empty cells, NA or nulls. Rows are grouped by --sequence, "
        "and each sequence is in the order of the table, or of --time. The names of the symbols, in alphabetical "
        "order, are stored with the model and printed. With --epsilon, --delta and --symbols the model does not reveal "
        "any single sequence, whatever its length. The symbols and the names of the sequences are public; a sequence "
        "with another symbol counts as blank. A plan is printed first, from public numbers; on a terminal, you are "
        "asked before anything is spent. A private table is a .csv or .tsv file.",
        examples=(
            "hmm log.csv --symbol event --sequence user -k 5 --labels states.csv",
            "hmm prices.csv --columns return,volume -k 3 --report page.html",
            "hmm log.csv --symbol event --sequence user -k 5 --epsilon 1 --delta 1e-6 --symbols open,read,close",
        ),
        plan="plan_hmm",
    ),
    RegisteredModel(
        command="ica",
        kind="sources model",
        module="odeco.models.ica.estimator",
        estimator="TensorICA",
        data="rows",
        component="source",
        components="sources",
        summary="Independent sources that rows of numbers mix: ICA; --labels writes the sources of each row.",
        text=_PRIVATE_ROWS,
        examples=(
            "ica recording.csv -k 4 --labels sources.csv --report page.html",
            "ica rows.npy -k 4 --epsilon 1 --delta 1e-6 --norm-bound auto --out model.npz",
        ),
        labels="transform",
        shares=False,
        plan="plan_sources",
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
        text="FILE is a table with names (.csv, .tsv, .parquet, .arrow, .feather), one row per respondent. Empty cells "
        "are missing answers. With --epsilon, --delta and --answers the model does not reveal any single respondent. "
        "The list of answers is public: one made from the table would reveal respondents. Any other answer counts as "
        "missing. A plan is printed first, from public numbers; on a terminal, you are asked before anything is spent. "
        "A private table is a .csv or .tsv file.",
        examples=(
            "classes survey.csv -k 4 --drop id --labels classes.csv --report page.html",
            "classes survey.csv -k 4 --epsilon 1 --delta 1e-6 --answers yes,no --out model.npz",
        ),
        plan="plan_classes",
    ),
    RegisteredModel(
        command="communities",
        kind="communities model",
        module="odeco.models.mmsb.estimator",
        estimator="Communities",
        data="graph",
        component="community",
        components="communities",
        summary="Communities of a graph; a node may belong to several: a mixed-membership block model.",
        text="FILE is a list of edges (.csv, .tsv, .txt: two nodes per line, and a weight if there is one) or an "
        "adjacency matrix (.npz of SciPy, .mtx).",
        examples=("communities edges.csv -k 8 --labels memberships.csv --report page.html",),
        labels="memberships_",
    ),
)

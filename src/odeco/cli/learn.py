"""``odeco learn``: clusters, states, sources, classes and communities, from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from odeco.cli import learn_options as _learn_options
from odeco.cli import options as _options
from odeco.cli.inputs import read_private_rows, read_rows
from odeco.cli.learn_output import Labels, deliver_model
from odeco.cli.spending import budget_options, spent_sentence
from odeco.display.progress import progress_bar
from odeco.io.graphs import read_graph
from odeco.io.tables import answers_named, lengths_of, read_text_table, sequences_of


@click.group("learn")
def command() -> None:
    r"""Learn a model with hidden variables: which groups, states, sources or classes are behind the rows of a file.

    \b
    Examples:
      odeco learn mixture rows.csv -k 10 --labels clusters.csv --report page.html
      odeco learn hmm log.csv --symbol event --sequence user -k 5
      odeco learn ica recording.csv --report page.html
      odeco learn classes survey.csv -k 4 --drop id
      odeco learn classes survey.csv -k 4 --epsilon 1 --delta 1e-6 --answers yes,no
      odeco learn communities edges.csv -k 8 --labels memberships.csv
    """


def _learning(work: Callable[[], Any]) -> Any:
    """Do the work, and show people that something goes on."""
    with progress_bar(only_on_terminal=True) as show_progress:
        show_progress("learning")
        return work()


@command.command("mixture")
@click.argument("file", type=_options.FILE)
@_learn_options.number("clusters")
@click.option(
    "--covariance",
    type=click.Choice(["spherical", "diag", "full"]),
    default="spherical",
    show_default=True,
    help="The shape of a cluster.",
)
@_options.columns
@_options.drop
@budget_options("rows")
@click.option("--norm-bound", type=float, metavar="B", help="For --epsilon: longer rows are shortened to this length.")
@_learn_options.outputs
def mixture(
    file: Path,
    n_components: Any,
    covariance: str,
    columns: list[str] | None,
    drop: list[str] | None,
    epsilon: float | None,
    delta: float | None,
    norm_bound: float | None,
    ledger: Path | None,
    budget: float | None,
    yes: bool,
    seed: int,
    threads: int | None,
    **outputs: Any,
) -> None:
    r"""Clusters of rows of numbers: a mixture of Gaussians.

    With --epsilon, --delta and --norm-bound no one row can be told from the model. A plan comes first, from public
    numbers; where there is a terminal, it is asked before anything is spent. A private CSV file begins with a line of
    names, and all of its columns are read.

    \b
    Examples:
      odeco learn mixture rows.csv -k 10 --labels clusters.csv --report page.html
      odeco learn mixture rows.npy -k 10 --epsilon 1 --delta 1e-6 --norm-bound 20 --out model.npz
    """
    from odeco.models.gmm.estimator import TensorMixture  # scikit-learn may be missing
    from odeco.models.gmm.private import plan_mixture  # scikit-learn may be missing

    private = (epsilon, delta, norm_bound, ledger, budget) != (None,) * 5
    if private and None in (epsilon, delta, norm_bound):
        raise click.UsageError("A private model needs --epsilon, --delta and --norm-bound. Pass all three, or none.")
    if private and (columns is not None or drop is not None):
        raise click.UsageError("--columns and --drop are not for private rows. Write a file of the columns you want.")
    if private:
        _learn_options.check_private(n_components, outputs["labels_path"])
    rows, names = read_private_rows(file) if private else read_rows(file, columns, drop)
    model = TensorMixture(
        n_components,
        covariance_type=covariance,  # type: ignore[arg-type]
        epsilon=epsilon,
        delta=delta,
        norm_bound=norm_bound,
        random_state=seed,
    )
    with _options.limited(threads):
        if epsilon is not None and delta is not None:
            n_rows, n_features = rows.shape
            plan = plan_mixture(n_components, n_rows=n_rows, n_features=n_features, epsilon=epsilon, delta=delta)
            model.ledger = _learn_options.spend(
                plan, f"{n_rows:,} rows", as_json=outputs["as_json"], ledger=ledger, budget=budget, yes=yes
            )
        _learning(lambda: model.fit(rows))
        deliver_model(
            model,
            title=f"Clusters of {file.name}",
            names=names,
            labels=lambda: Labels.of_shares(model.predict_proba(rows), "cluster"),
            plot=lambda: model.plot(None if private else rows),
            spent=spent_sentence(epsilon, ledger),
            **outputs,
        )


@command.command("hmm")
@click.argument("file", type=_options.FILE)
@_learn_options.number("states")
@click.option("--symbol", metavar="COLUMN", help="The column of a table that holds symbols, one a row.")
@click.option("--sequence", metavar="COLUMN", help="The column that names the sequence; rows of one stand together.")
@_options.columns
@_options.drop
@_learn_options.outputs
def hmm(
    file: Path,
    n_components: Any,
    symbol: str | None,
    sequence: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    seed: int,
    threads: int | None,
    **outputs: Any,
) -> None:
    r"""Hidden states of sequences: a hidden Markov model.

    With --symbol the rows are symbols (texts); without it they are numbers, in the order of time. The model keeps what
    symbols are called, in the order of the alphabet, which is printed.

    \b
    Examples:
      odeco learn hmm log.csv --symbol event --sequence user -k 5 --labels states.csv
      odeco learn hmm prices.csv --columns return,volume -k 3 --report page.html
    """
    from odeco.models.hmm.estimator import TensorHMM  # scikit-learn may be missing

    groups = read_text_table(file).column(sequence) if sequence is not None else None
    names: list[str] | None
    if symbol is not None:
        read = sequences_of(read_text_table(file).column(symbol), groups)
        rows: Any = read.symbols
        lengths, names = read.lengths, [symbol]
        symbol_names: list[str] | None = read.names
        remark = f"Symbols: {', '.join(f'{number} {name}' for number, name in enumerate(read.names))}."
    else:
        left = None if columns is not None or sequence is None else [*(drop or []), sequence]
        rows, names = read_rows(file, columns, left if columns is None else drop)
        lengths, remark, symbol_names = lengths_of(groups, len(rows)), "", None
    model = TensorHMM(n_components, emissions="gaussian" if symbol is None else "categorical", random_state=seed)
    with _options.limited(threads):
        _learning(lambda: model.fit(rows, lengths=lengths, symbol_names=symbol_names))
        deliver_model(
            model,
            title=f"States of {file.name}",
            names=names,
            labels=lambda: Labels.of_shares(model.predict_proba(rows, lengths=lengths), "state"),
            remark=remark,
            **outputs,
        )


@command.command("ica")
@click.argument("file", type=_options.FILE)
@_learn_options.number("sources")
@_options.columns
@_options.drop
@_learn_options.outputs
def ica(
    file: Path,
    n_components: Any,
    columns: list[str] | None,
    drop: list[str] | None,
    seed: int,
    threads: int | None,
    **outputs: Any,
) -> None:
    r"""Independent sources that rows of numbers are mixtures of; --labels writes the sources of each row.

    \b
    Example:
      odeco learn ica recording.csv -k 4 --labels sources.csv --report page.html
    """
    from odeco.models.ica.estimator import TensorICA  # scikit-learn may be missing

    rows, names = read_rows(file, columns, drop)
    model = TensorICA(n_components, random_state=seed)
    with _options.limited(threads):
        _learning(lambda: model.fit(rows))
        deliver_model(
            model,
            title=f"Sources of {file.name}",
            names=names,
            labels=lambda: Labels([f"source {i}" for i in range(model.n_components_)], model.transform(rows)),
            **outputs,
        )


@command.command("classes")
@click.argument("file", type=_options.FILE)
@_learn_options.number("classes")
@_options.columns
@_options.drop
@budget_options("respondents")
@click.option(
    "--answers",
    metavar="A,B | FILE",
    help="For --epsilon: the possible answers, the same for all questions; or a .json file that lists those to each.",
)
@_learn_options.outputs
def classes(
    file: Path,
    n_components: Any,
    columns: list[str] | None,
    drop: list[str] | None,
    epsilon: float | None,
    delta: float | None,
    ledger: Path | None,
    budget: float | None,
    yes: bool,
    answers: str | None,
    seed: int,
    threads: int | None,
    **outputs: Any,
) -> None:
    r"""Classes of respondents to questions with few answers each: latent class analysis. Empty cells are no answers.

    FILE is a table with names (.csv, .tsv, .parquet, .arrow, .feather), a row a respondent. With --epsilon, --delta and
    --answers no one respondent can be told from the model. The answers are public: what occurs would show respondents.
    Any other answer counts as none. A plan comes first, from public numbers; where there is a terminal, it is asked
    before anything is spent. A private table is a .csv or .tsv file.

    \b
    Examples:
      odeco learn classes survey.csv -k 4 --drop id --labels classes.csv --report page.html
      odeco learn classes survey.csv -k 4 --epsilon 1 --delta 1e-6 --answers yes,no --out model.npz
    """
    from odeco.models.lca.estimator import LatentClasses  # scikit-learn may be missing
    from odeco.models.lca.private import plan_classes  # scikit-learn may be missing

    if columns is not None and drop is not None:
        raise click.UsageError("--columns and --drop must not be given together. Pass the one that is shorter.")
    private = (epsilon, delta, answers, ledger, budget) != (None,) * 5
    if private and None in (epsilon, delta, answers):
        raise click.UsageError("A private model needs --epsilon, --delta and --answers. Pass all three, or none.")
    if private:
        _learn_options.check_private(n_components, outputs["labels_path"])
    table = read_text_table(file, private=private)
    table = table.only(columns) if columns is not None else table.without(drop or [])
    model = LatentClasses(n_components, missing_values=None, epsilon=epsilon, delta=delta, random_state=seed)
    categories = None
    with _options.limited(threads):
        if epsilon is not None and delta is not None and answers is not None:
            named = answers_named(answers, table.columns)
            table, categories = table.only(list(named)), list(named.values())
            plan = plan_classes(
                n_components,
                n_respondents=len(table.cells),
                categories=[len(own) for own in categories],
                epsilon=epsilon,
                delta=delta,
            )
            model.ledger = _learn_options.spend(
                plan,
                f"{len(table.cells):,} respondents",
                as_json=outputs["as_json"],
                ledger=ledger,
                budget=budget,
                yes=yes,
            )
        _learning(lambda: model.fit(table.cells, categories=categories))
        deliver_model(
            model,
            title=f"Classes of {file.name}",
            names=table.columns,
            labels=lambda: Labels.of_shares(model.predict_proba(table.cells), "class"),
            spent=spent_sentence(epsilon, ledger),
            **outputs,
        )


@command.command("communities")
@click.argument("file", type=_options.FILE)
@_learn_options.number("communities")
@_learn_options.outputs
def communities(file: Path, n_components: Any, seed: int, threads: int | None, **outputs: Any) -> None:
    r"""Communities of a graph, of which a node may belong to several: a mixed-membership block model.

    FILE is a list of edges (.csv, .tsv, .txt: two nodes a line, and a weight if there is one) or an adjacency matrix
    (.npz of SciPy, .mtx).

    \b
    Example:
      odeco learn communities edges.csv -k 8 --labels memberships.csv --report page.html
    """
    from odeco.models.mmsb.estimator import Communities  # scikit-learn may be missing

    graph = read_graph(file)
    model = Communities(n_components, random_state=seed)
    with _options.limited(threads):
        _learning(lambda: model.fit(graph.adjacency))
        deliver_model(
            model,
            title=f"Communities of {file.name}",
            names=graph.names,
            labels=lambda: Labels.of_shares(model.memberships_, "community", graph.names),
            **outputs,
        )

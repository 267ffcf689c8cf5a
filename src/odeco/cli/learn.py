"""``odeco learn``: the registry of models, and one sub-command for each.

The command of a model follows from its entry: options from the parameters that its estimator declares, and from its
kind of input (`odeco.cli.learn_files`). Estimators are imported when they are needed: scikit-learn takes a second.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from odeco.cli import options as _options
from odeco.cli.app import TableGroup, complete
from odeco.cli.learn_files import INPUTS, Data, deliver_model, labels_csv
from odeco.cli.output import columns_called, console, read_row_ids
from odeco.display.progress import progress_bar


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


_PLAN = "A plan is printed first, from public numbers; on a terminal, you are asked before anything is spent. "

_PRIVATE_ROWS = (
    f"With --epsilon, --delta and --norm-bound the model does not reveal any single row. {_PLAN}A private CSV file "
    "begins with a line of names, and all of its columns are read."
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
        f"with another symbol counts as blank. {_PLAN}A private table is a .csv or .tsv file.",
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
        f"missing. {_PLAN}A private table is a .csv or .tsv file.",
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


#: Options of the budget, which no parameter of an estimator declares.
_BUDGET = ("epsilon", "delta", "ledger", "budget")


class _Models(TableGroup):
    """One command for each registered model, made when it is used: estimators take a second to import."""

    @property
    def summaries(self) -> dict[str, str]:
        return {model.command: model.summary for model in MODELS}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        found = next((model for model in MODELS if model.command == cmd_name), None)
        return None if found is None else complete(make_command(found))


def _help(text: str, examples: tuple[str, ...]) -> str:
    return "\n\n".join([text, "\n".join(["\b", "Examples:", *(f"  odeco learn {each}" for each in examples)])])


learn = _Models(
    "learn",
    help=_help(
        "Learn a latent-variable model: the groups, states, sources or classes behind the rows of a file.",
        tuple(example for model in MODELS for example in model.examples),
    ),
)


def make_command(model: RegisteredModel) -> click.Command:
    """Return the command of a model, with an option for each parameter of its estimator that declares one."""
    from odeco.cli.private import budget_options  # mechanisms take a moment, and `odeco info` needs this registry

    estimator, source = model.load_estimator(), INPUTS[model.data]
    needs = _private_needs(model, estimator)
    declared = [
        _option(each, model)
        for each in fields(estimator)
        if each.metadata["option"] and each.name not in _BUDGET and (model.plan or each.name not in needs)
    ]

    def run(file: Path, **values: Any) -> None:
        _learn(model, estimator, needs, file, values)

    add_options = _options.group(
        click.argument("file", type=_options.FILE),
        *declared,
        source.options,
        *([budget_options(f"{estimator._SPEC.record}s")] if model.plan else []),
        *(_options.seed, _options.json_output, _options.out),
        click.option(
            *("--labels", "labels_path"),
            type=_options.OUTPUT,
            metavar="FILE",
            help=f"Write the {model.components} of each row to this .csv file.",
        ),
        *(_options.report, _options.threads),
    )
    text = _help("\n\n".join(filter(None, (model.summary, model.text))), model.examples)
    return click.command(model.command, help=text)(add_options(run))


def _private_needs(model: RegisteredModel, estimator: Any) -> dict[str, str]:
    """Return the options without which a fit is not private, by the names of their arguments."""
    options = {each.name: each.metadata["option"] for each in fields(estimator)}
    needs = (*estimator._SPEC.Guarantee.parameters, *estimator._SPEC.private_needs)
    needed = [each for each in needs if each in options]
    return {name: options[name] for name in needed} | (INPUTS[model.data].private_options if model.plan else {})


def _option(declared: Any, model: RegisteredModel) -> Callable[[Any], Any]:
    """Return the option of a parameter."""
    constraint, option = declared.metadata["constraint"], declared.metadata["option"]
    if declared.name == "n_components":
        how: Any = {"default": "auto", "metavar": "K", "callback": _options.number_or_auto}
        return click.option(option, "--n-components", help=f"Number of {model.components}; 'auto' selects it.", **how)
    return click.option(
        option,
        declared.name,
        type=click.Choice(constraint.choices) if constraint.choices else constraint.kind,
        default=declared.default,
        callback=lambda _context, _parameter, value: constraint.kind(value) if constraint.choices else value,
        metavar=None if constraint.choices else option.strip("-")[0].upper(),
        help=declared.metadata["help"],
    )


def _learn(model: RegisteredModel, estimator: Any, needs: dict[str, str], file: Path, values: dict[str, Any]) -> None:
    """Read the file, fit the model, and deliver it."""

    def take(*names: str) -> dict[str, Any]:
        return {name: values.pop(name) for name in names if name in values}

    seed, threads = values.pop("seed"), values.pop("threads")
    outputs, budget = take("out", "labels_path", "report", "as_json"), take("ledger", "budget", "yes")
    id_column, append = values.pop("id_column", None), values.pop("append", False)
    unused = (id_column is not None or append) and outputs["labels_path"] is None
    _options.check_usage(
        {"--id and --append are for the rows that --labels FILE writes. Pass it, or leave them out.": unused}
    )
    if id_column is not None and values.get("columns") is None:
        values["drop"] = [*dict.fromkeys([*(values["drop"] or []), id_column])]
    private = _is_private(model, needs, values, budget)
    if private and outputs["labels_path"] is not None:
        raise click.UsageError("--labels would reveal where each private row belongs. Leave it out.")
    if private and values["n_components"] == "auto":
        raise click.UsageError("A private model needs a number: choosing one would look at the rows. Pass -k.")
    read = inspect.signature(INPUTS[model.data].read).parameters
    data = INPUTS[model.data].read(file, private=private, **take(*(name for name in read if name != "file")))
    # Before a long fit.
    ids = read_row_ids([file], id_column, append=append, n_rows=data.X.shape[0], what=model.component)
    learner = estimator(random_state=seed, **values, **data.parameters)
    spent = ""
    with _options.limited(threads):
        if private:
            learner.ledger, spent = _spend(model, values, data, as_json=outputs["as_json"], **budget)
        with columns_called(data.columns), progress_bar(only_on_terminal=True) as show_progress:
            show_progress("learning")
            learner.fit(data.X, **data.fit)

        def labels() -> str:
            found = getattr(learner, model.labels)
            shown = data.restore(found(data.X, **data.predict) if callable(found) else found)
            return labels_csv(shown, model.component, shares=model.shares, rows=data.rows, ids=ids)

        title = f"{model.components.capitalize()} of {file.name}"
        deliver_model(learner, data, outputs, title=title, private=private, labels=labels, spent=spent)


def _is_private(model: RegisteredModel, needs: dict[str, str], values: dict[str, Any], budget: dict[str, Any]) -> bool:
    """Return whether a private fit is asked for; raise if something is missing that it needs."""
    if not model.plan:
        return False
    given = [name for name in needs if values.get(name) is not None]
    if not given and budget["ledger"] is None and budget["budget"] is None:
        return False
    if len(given) < len(needs):
        *first, last = needs.values()
        raise click.UsageError(f"A private model needs {', '.join(first)} and {last}. Pass all of them, or none.")
    return True


def _spend(
    model: RegisteredModel, values: dict[str, Any], data: Data, *, as_json: bool, **budget: Any
) -> tuple[str | None, str]:
    """Print the plan, ask, and return the ledger, and what an error must say of it.

    The plan of users is that of as many records.
    """
    from odeco import models  # scikit-learn may be missing
    from odeco.cli.private import Request, agree_to_spend, spent_sentence

    known = {name: values[name] for name in ("epsilon", "delta", "norm_bound") if name in values}
    plan = getattr(models, model.plan)(values["n_components"], **known, **data.public)
    if "groups" in data.fit:
        plan = replace(plan, unit="user")
    if not as_json:
        console().print(f"{plan}\n", markup=False, soft_wrap=True)
    ledger = agree_to_spend(Request.of(plan, f"{plan.n_records:,} {plan.unit}s"), **budget)
    return None if ledger is None else str(ledger.path), spent_sentence(values["epsilon"], budget["ledger"])

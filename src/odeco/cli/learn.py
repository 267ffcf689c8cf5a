"""``odeco learn``: one sub-command for each registered model.

The command of a model follows from its entry: options from the parameters that its estimator
declares, and from its kind of input.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.cli import options as _options
from odeco.cli.app import TableGroup, command_line
from odeco.cli.flow import Show, connected, limited, stages, with_standard_input
from odeco.cli.inputs import INPUTS, Data, Given, Input, Shown
from odeco.cli.models import MODELS, RegisteredModel
from odeco.cli.options import Command, OutputFile, Section, check_usage, option
from odeco.cli.output import (
    Output,
    columns_called,
    deliver,
    labels_csv,
    print_json,
    print_text,
    read_row_ids,
)
from odeco.cli.privacy import Request, agree_to_spend, spent_sentence
from odeco.cli.tables import write_text

#: Parameters of estimators that are options of the section on privacy.
_PRIVATE = {"epsilon": _options.EPSILON, "delta": _options.DELTA, "norm_bound": _options.NORM_BOUND}


class _Models(TableGroup):
    """One command for each registered model, made when it is used: estimators take a second to
    import.
    """

    @property
    def summaries(self) -> dict[str, str]:
        return {name: model.summary for name, model in MODELS.items()}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return make_command(MODELS[cmd_name]) if cmd_name in MODELS else None


learn = _Models(
    "learn",
    params=[_options.QUIET, _options.DEBUG],
    help="Learn a latent-variable model: the topics, groups, states, sources or classes behind "
    "the records of a file."
    "\n\n\b\nExamples:\n"
    + "\n".join(
        f"  odeco learn {each}" for model in MODELS.values() for each in model.examples[:1]
    ),
)


def make_command(model: RegisteredModel) -> Command:
    """Return the command of a model, with an option for each parameter of its estimator that
    declares one.
    """
    estimator = model.load_estimator()
    declared = [each for each in fields(estimator) if each.metadata["option"]]
    own = tuple(_option_of(each, model) for each in declared if each.name not in _PRIVATE)
    kind = kind_of(model).input
    sections = [Section("Model", own), Section("Data", kind.options)]
    if model.is_private:
        private = tuple(_PRIVATE[each.name] for each in declared if each.name in _PRIVATE)
        options = (*private, *kind.private_options, *_options.SPENDING)
        sections.append(Section("Privacy", options, needs="--epsilon"))
    labels = option(
        "--labels",
        "labels_path",
        type=OutputFile(suffixes=(".csv",)),
        metavar="FILE",
        help=f"Write the {model.components} of each row to this .csv file.",
    )
    check = option(
        "--no-check",
        is_flag=True,
        help="Do not check components on halves of the data (some six fits).",
    )
    with_ids = (_options.APPEND,) if _options.ID in kind.options else ()
    output = (_options.OUT, labels, *with_ids, _options.REPORT, _options.JSON, check)
    sections += [Section("Output", output), _options.general(_options.SEED, _options.THREADS)]
    return Command(
        model.command,
        partial(run, model),
        tuple(sections),
        arguments=(_options.FILE_OR_NONE if model.data == "documents" else _options.ONE_FILE,),
        text=f"{model.summary}\n\n{model.text}".strip(),
        examples=tuple(f"learn {each}" for each in model.examples),
    )


def _option_of(declared: Any, model: RegisteredModel) -> click.Option:
    """Return the option of a parameter."""
    constraint = declared.metadata["constraint"]
    name = declared.metadata["option"]
    if declared.name == "n_components":
        return option(
            *(name, "--n-components"),
            default="auto",
            metavar="K",
            callback=_options.read_number,
            help=f"Number of {model.components}; 'auto' selects it.",
        )

    def as_value(_: click.Context, __: click.Parameter, value: Any) -> Any:
        return constraint.kind(value) if constraint.choices and value else value

    return option(
        name,
        declared.name,
        type=click.Choice(constraint.choices) if constraint.choices else constraint.kind,
        default=declared.default,
        callback=as_value,
        metavar=None if constraint.choices else name.strip("-")[0].upper(),
        help=declared.metadata["help"],
    )


# Kinds of input -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Models of tables and graphs: what the flow needs of their input.

    `odeco.cli.documents.Documents` has the same methods for documents.
    """

    model: RegisteredModel

    @property
    def input(self) -> Input:
        """How their files are read."""
        return INPUTS[self.model.data]

    def check(self, files: tuple[Path, ...], given: Given, *, private: bool) -> None:  # noqa: ARG002 - one FILE
        """Raise if options contradict each other, or if a private fit lacks one."""
        if not private:
            return
        needs = {"delta": "--delta", **self.input.private_needs}
        if "norm_bound" in given:
            needs["norm_bound"] = "--norm-bound"
        missing = [name for parameter, name in needs.items() if given[parameter] is None]
        if missing:
            raise click.UsageError(
                f"A private {self.model.command} model needs {' and '.join(missing)}. Pass all of "
                "them, or none."
            )

    def read(
        self,
        files: tuple[Path, ...],
        given: Given,
        *,
        private: bool,
        show: Show,  # noqa: ARG002
        client: Any,  # noqa: ARG002
    ) -> Data:
        """Return what is in the FILE."""
        return self.input.read(files[0], given, private)  # type: ignore[misc]

    def request(self, data: Data, given: Given) -> Request:
        """Print the plan of a private fit, and return its budget; the plan of users is that of as
        many records.
        """
        known = {name: given[name] for name in _PRIVATE if name in given}
        plan = self.model.load_plan()(given["n_components"], **known, **data.public)
        if "groups" in data.fit:
            plan = replace(plan, unit="user")
        if not given["as_json"]:
            print_text(f"{plan}\n")
        return Request.of(plan, f"{plan.n_records:,} {plan.unit}s")

    def prepare(self, data: Data, given: Given, ledger: Any) -> Data:  # noqa: ARG002 - as `Documents`
        """Return what is learnt from, after the budget was agreed on."""
        return data

    def fit(self, learner: Any, data: Data, show: Show) -> tuple[str, ...]:
        """Fit an estimator, and return the warnings that belong to the result."""
        show("learning")
        learner.fit(data.X, **data.fit)
        return ()

    def labelled(self, data: Data) -> Any:
        """Return the rows that labels are written for."""
        return data.X

    def show(
        self,
        model: Any,
        data: Data,
        given: Given,
        title: str,
        messages: tuple[str, ...],  # noqa: ARG002
    ) -> Shown:
        """Return how a fitted model is shown."""
        if data.columns is not None and not hasattr(model, "feature_names_in_"):
            model.feature_names_in_ = np.array(data.columns, dtype=object)
        summary = model.summary()

        def write_page(path: Path) -> None:
            rows = None if given.get("epsilon") is not None else data.X
            how = {"title": title, "remark": data.remark, "command": command_line(), **data.page}
            model.write_report(path, rows=rows, lengths=data.predict.get("lengths"), **how)

        text = "\n".join([summary, f"{data.remark} {data.hint}".strip()]).rstrip()
        return Shown(text, partial(_document, model, summary), write_page)


def _document(model: Any, summary: str) -> dict[str, Any]:
    """Return a model for programs: all that it learnt, under the names that Python has for it."""
    learnt = {}
    for name in dir(type(model)):
        is_learnt = (
            name.endswith("_")
            and not name.startswith("_")
            and isinstance(getattr(type(model), name), property)
        )
        if is_learnt and hasattr(model, name):
            learnt[name] = getattr(model, name)
    verdict = summary.splitlines()[0]
    document = {"kind": model._KIND, "verdict": verdict, "parameters": model.get_params(), **learnt}
    if hasattr(model, "feature_names_in_"):
        document["feature_names_in_"] = model.feature_names_in_
    return document


def kind_of(model: RegisteredModel) -> Any:
    """Return the kind of input of a model."""
    if model.data == "documents":
        from odeco.cli.documents import Documents  # scikit-learn and numba take a second

        return Documents()
    return Tables(model)


# The flow -----------------------------------------------------------------------------------------


def run(
    model: RegisteredModel, file: Path | None = None, files: tuple[Path, ...] = (), **given: Any
) -> None:
    """Read the data, agree on the budget, fit the model, and deliver it."""
    named = files if file is None else (file,)
    kind = kind_of(model)
    private = model.is_private and given["epsilon"] is not None
    _check_usage(given, private=private)
    kind.check(named, given, private=private)
    copied = named if model.data != "documents" else ()
    with limited(given["threads"]), connected(given.get("scheduler")) as client:
        with stages() as (show, _), with_standard_input(copied, private=private) as copies:
            show("reading")
            reading = given if given.get("id_column") is None else given | _without_ids(given)
            sources = copies or named
            data = kind.read(sources, reading, private=private, show=show, client=client)
            append = given.get("append", False)  # before a long fit: ids may not fit the rows
            ids = read_row_ids(
                sources,
                given.get("id_column"),
                append=append,
                n_rows=data.n_rows,
                what=model.component,
            )
        ledger = None
        if private:  # without a bar, which would hide the question
            budget = {name: given[name] for name in ("ledger", "budget", "data", "yes")}
            ledger = agree_to_spend(
                kind.request(data, given), named or (Path("Python's documentation"),), **budget
            )
        with stages() as (show, _), columns_called(data.columns):
            data = kind.prepare(data, given, ledger)
            learner = _make_estimator(model, data, given, ledger)
            messages = kind.fit(learner, data, show)
            if (
                not private
                and not given["no_check"]
                and client is None
                and learner.n_components_ > 1
            ):
                show("checking on halves")
                _check_on_halves(learner, data)
            show("describing")
            shown = kind.show(
                learner,
                data,
                given,
                f"{model.components.capitalize()} of {_name_of(named)}",
                messages,
            )

    def write_labels(path: Path) -> None:
        write_text(path, labels_of(model, learner, kind.labelled(data), data, ids))

    def print_model() -> None:
        if given["as_json"]:
            print_json(shown.document())
        else:
            print_text(shown.text)

    with warnings.catch_warnings():  # rows come without the names that the model now has
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        deliver(
            print_model,
            Output(given["out"], learner.save),
            Output(given["labels_path"], write_labels),
            Output(given["report"], shown.write_page),
            save=("model.npz", learner.save),
            spent=spent_sentence(given["epsilon"], given["ledger"]) if private else "",
        )


def _check_usage(given: Given, *, private: bool) -> None:
    """Raise if options contradict each other."""
    of_rows = given.get("id_column") is not None or given.get("append")
    no_labels = given["labels_path"] is None
    check_usage(
        {
            (
                "--id and --append are for the rows that --labels FILE writes. Pass it, or leave "
                "them out."
            ): of_rows and no_labels,
            "--labels would reveal where each private record belongs. Leave it out.": private
            and not no_labels,
            "A private model needs a number: choosing one would look at the records. Pass -k.": (
                private and given["n_components"] == "auto"
            ),
        }
    )


def _without_ids(given: Given) -> Given:
    """Return the options with the column of ids left out, unless the columns to read are named."""
    if "drop" not in given or given["columns"] is not None:
        return {}
    return {"drop": [*dict.fromkeys([*(given["drop"] or []), given["id_column"]])]}


def _name_of(files: tuple[Path, ...]) -> str:
    if not files:
        return "the documentation of Python"
    name = "the standard input" if str(files[0]) == "-" else files[0].name
    return name if len(files) == 1 else f"{name} and {len(files) - 1} more"


def _make_estimator(model: RegisteredModel, data: Data, given: Given, ledger: Any) -> Any:
    """Return an estimator with the parameters that were given, and those that follow from the
    data.
    """
    estimator = model.load_estimator()
    names = {each.name for each in fields(estimator)} - {"ledger"}
    settings = {name: value for name, value in given.items() if name in names}
    if ledger is not None:
        settings["ledger"] = str(ledger.path)
    return estimator(random_state=given["seed"], **(settings | data.parameters))


def _check_on_halves(learner: Any, data: Data) -> None:
    """Check whether halves of the data show the components again; the summary says if they are too
    few.
    """
    side = {name: value for name, value in data.fit.items() if name != "vocabulary"}
    with contextlib.suppress(ValueError):
        learner.split_half(data.X, **side)


def labels_of(model: RegisteredModel, learner: Any, rows: Any, data: Data, ids: Any) -> str:
    """Return the components of each row as CSV."""
    found = getattr(learner, model.labels)
    values = found(rows, **data.predict) if callable(found) else found
    leading = None
    if model.shares and callable(found) and hasattr(learner, "predict"):
        leading = data.restore(np.asarray(learner.predict(rows, **data.predict)))
    values = data.restore(values)
    how: dict[str, Any] = {"shares": model.shares, "leading": leading, "rows": data.rows}
    return labels_csv(values, model.component, ids=ids, **how)

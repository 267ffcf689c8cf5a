"""``odeco learn``: one sub-command for each model of `odeco.cli.models`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from odeco.cli import options as _options
from odeco.cli.faults import SuggestingGroup
from odeco.cli.learn_files import INPUTS, deliver_model, labels_csv
from odeco.cli.models import MODELS, RegisteredModel
from odeco.cli.output import columns_called, console
from odeco.cli.row_ids import check_row_ids, read_row_ids
from odeco.cli.spending import Request, agree_to_spend, budget_options, spent_sentence
from odeco.display.progress import progress_bar

#: Options of the budget, which no parameter of an estimator declares.
_BUDGET = ("epsilon", "delta", "ledger", "budget")


class _Models(SuggestingGroup):
    """One command for each registered model, made when it is used: estimators take a second to import."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [model.command for model in MODELS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        from odeco.cli.app import complete  # which imports this module

        found = next((model for model in MODELS if model.command == cmd_name), None)
        return None if found is None else complete(make_command(found))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(model.command, model.summary) for model in MODELS])


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
            "--labels",
            "labels_path",
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
        return click.option(
            option,
            "--n-components",
            default="auto",
            metavar="K",
            callback=_options.number_or_auto,
            help=f"Number of {model.components}; 'auto' selects it from the data.",
        )
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
    check_row_ids(outputs["labels_path"], id_column, append=append, option="--labels")
    if id_column is not None and values.get("columns") is None:
        values["drop"] = [*dict.fromkeys([*(values["drop"] or []), id_column])]
    private = _is_private(model, needs, values, budget)
    if private and outputs["labels_path"] is not None:
        raise click.UsageError("--labels would reveal where each private row belongs. Leave it out.")
    if private and values["n_components"] == "auto":
        raise click.UsageError("A private model needs a number: choosing one would look at the rows. Pass -k.")
    read = inspect.signature(INPUTS[model.data].read).parameters
    data = INPUTS[model.data].read(file, private=private, **take(*(name for name in read if name != "file")))
    ids = read_row_ids([file], id_column, append=append, n_rows=data.X.shape[0])  # before a long fit
    learner = estimator(random_state=seed, **values, **data.parameters)
    with _options.limited(threads):
        if private:
            by_user = "groups" in data.fit
            learner.ledger = _spend(model, values, data.public, by_user=by_user, as_json=outputs["as_json"], **budget)
        with columns_called(data.columns), progress_bar(only_on_terminal=True) as show_progress:
            show_progress("learning")
            learner.fit(data.X, **data.fit)

        def labels() -> str:
            found = getattr(learner, model.labels)
            shown = data.restore(found(data.X, **data.predict) if callable(found) else found)
            return labels_csv(shown, model.component, shares=model.shares, rows=data.rows, ids=ids)

        title = f"{model.components.capitalize()} of {file.name}"
        spent = spent_sentence(values.get("epsilon"), budget.get("ledger"))
        deliver_model(learner, data, title=title, private=private, labels=labels, spent=spent, **outputs)


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
    model: RegisteredModel,
    values: dict[str, Any],
    public: dict[str, Any],
    *,
    by_user: bool,
    as_json: bool,
    **budget: Any,
) -> str | None:
    """Print the plan, ask, and return the ledger. The plan of users is that of as many records."""
    from odeco import models  # scikit-learn may be missing

    known = {name: values[name] for name in ("epsilon", "delta", "norm_bound") if name in values}
    plan = getattr(models, model.plan)(values["n_components"], **known, **public)
    if by_user:
        plan = replace(plan, unit="user")
    if not as_json:
        console().print(f"{plan}\n", markup=False, soft_wrap=True)
    ledger = agree_to_spend(Request.of(plan, f"{plan.n_records:,} {plan.unit}s"), **budget)
    return None if ledger is None else str(ledger.path)

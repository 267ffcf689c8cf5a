"""``odeco plan``: what a private run would find, from public numbers alone."""

from __future__ import annotations

import json
from typing import Any

import click

import odeco
from odeco.cli import options as _options
from odeco.cli.models import MODELS
from odeco.cli.options import Command, Section, check_usage, given_options, option
from odeco.cli.output import note, plain, print_json, print_text
from odeco.privacy.holders.protocol import UNITS

#: What is planned: the decomposition of rows or of a tensor, a synthetic table, and every private
#: model.
_PLANNED = {
    "decompose": {},
    "synthesize": {},
    **{name: model.planned for name, model in MODELS.items() if model.plan},
}


def _read_counts(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[int] | None:
    """Return whole numbers with commas between them."""
    if value is None:
        return None
    try:
        return [int(each) for each in value.split(",")]
    except ValueError:
        text = f"{value!r} must be whole numbers with commas between them."
        raise click.BadParameter(text, context, parameter) from None


SECTIONS = (
    Section(
        "The run",
        (
            option(
                "-k",
                "--n-components",
                type=int,
                metavar="K",
                help="Number of components; synthetic tables need none.",
            ),
            option(
                "--epsilon", type=float, required=True, metavar="E", help="The ε of the guarantee."
            ),
            option(
                "--delta", type=float, metavar="D", help="Its δ, far below 1 / number of records."
            ),
            _options.NORM_BOUND,
            option(
                "--order",
                type=int,
                metavar="P",
                help="For decompose: the order of the moment; 3 by default.",
            ),
            option(
                "--nonnegative", is_flag=True, help="For decompose: negative numbers are set to 0."
            ),
        ),
    ),
    Section(
        "The data",
        (
            option(
                "--unit",
                type=click.Choice(UNITS),
                help="For decompose: what is protected; by default a record.",
            ),
            option(
                "--n-records",
                type=int,
                metavar="N",
                help="Number of rows, documents, sequences, users or nodes.",
            ),
            option(
                "--dimension", type=int, metavar="D", help="Number of columns, words or symbols."
            ),
            option(
                "--schema",
                type=_options.LOCAL_FILE,
                metavar="FILE",
                help="For synthesize: the columns and what each may hold, as JSON.",
            ),
            option(
                "--length",
                type=int,
                metavar="L",
                help="Words of a document, or length of a sequence.",
            ),
            option(
                "--answers",
                callback=_read_counts,
                metavar="3,2",
                help="How many answers each question has, 3,2,4.",
            ),
        ),
    ),
    Section("Output", (_options.JSON,)),
    _options.general(_options.SEED),
)


def run(what: str, **given: Any) -> None:
    """Print a plan."""
    plans = {"decompose": _plan_decompose, "synthesize": _plan_synthesis}
    plan = plans[what](given) if what in plans else _plan_model(what, given)
    if given["as_json"]:
        as_text = getattr(plan, "to_json", None)
        print_json({"plan": json.loads(as_text()) if as_text else plain(plan)})
    elif what == "decompose":
        print_text(plan.in_words(plan.best))
    else:
        print_text(str(plan))


def _check_given(
    what: str, given: dict[str, Any], needed: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    """Raise if an option is missing, or if one is given that the plan does not take."""
    about = (
        "n_components",
        "schema",
        "order",
        "nonnegative",
        "unit",
        "n_records",
        "dimension",
        "length",
        "answers",
        "norm_bound",
    )
    named = {name: f"--{name.replace('_', '-')}" for name in about} | {"n_components": "-k"}
    missing = [named[name] for name in needed if given[name] is None]
    unused = [
        named[name] for name in given_options() if name in about and name not in (*needed, *taken)
    ]
    check_usage(
        {
            f"The plan of {what} needs {' and '.join(missing)}. Pass it too.": missing,
            f"{' and '.join(unused)} is not for the plan of {what}. Leave it out.": unused,
        }
    )


def _plan_synthesis(given: dict[str, Any]) -> Any:
    from odeco.models.synthetic.plan import plan_synthesis  # SciPy takes half a second

    _check_given("synthesize", given, ("schema", "n_records"), ())
    if given["delta"] is None:
        raise click.UsageError("The plan of synthesize needs --delta. Pass it too.")
    return plan_synthesis(
        given["schema"],
        n_rows=given["n_records"],
        epsilon=given["epsilon"],
        delta=given["delta"],
    )


def _plan_decompose(given: dict[str, Any]) -> Any:
    unit: Any = given["unit"] or "record"
    rows = ("n_records", "norm_bound")
    of_rows = unit != "entry"
    always = ("n_components", "dimension")
    needed = (*always, *rows) if of_rows else always
    _check_given(
        "decompose",
        given,
        needed,
        ("unit", "order", "nonnegative") if of_rows else ("unit", "order"),
    )
    if given["delta"] is None:
        raise click.UsageError("The plan of decompose needs --delta. Pass it too.")
    return odeco.plan_privacy(
        dimension=given["dimension"],
        n_components=given["n_components"],
        epsilon=given["epsilon"],
        delta=given["delta"],
        unit=unit,
        n_units=given["n_records"],
        norm_bound=given["norm_bound"],
        order=given["order"],
        nonnegative=given["nonnegative"] or None,
    )


def _plan_model(what: str, given: dict[str, Any]) -> Any:
    model = MODELS[what]
    optional = ("norm_bound",) if what in ("mixture", "ica") else ()
    planned = tuple(name for name in model.planned if name != "length" or what != "topics")
    needed = ("n_components", *planned)
    _check_given(what, given, needed, (*optional, *model.planned))
    public = {own: given[name] for name, own in model.planned.items() if given[name] is not None}
    public |= {name: given[name] for name in optional if given[name] is not None}
    budget = {name: given[name] for name in ("epsilon", "delta") if given[name] is not None}
    if what == "topics":
        budget = _left_for_topics(given)
    return model.load_plan()(given["n_components"], seed=given["seed"], **budget, **public)


def _left_for_topics(given: dict[str, Any]) -> dict[str, float]:
    """Return what choosing words leaves of the budget of topics; without --vocabulary a run chooses
    them by votes.
    """
    from odeco.models.lda.private_vocabulary import (
        DELTA_SHARE,
        SHARE,
        left_for_learning,
    )  # scikit-learn may be missing

    if given["delta"] is None:
        raise click.UsageError("The plan of topics needs --delta. Pass it too.")
    epsilon, delta = left_for_learning(given["epsilon"], given["delta"])
    note(
        f"Choosing words by noisy votes takes {SHARE:.0%} of μ² and {DELTA_SHARE:.0%} of δ; "
        "topics get the rest. A run with --vocabulary FILE spends all on topics."
    )
    return {"epsilon": epsilon, "delta": delta}


plan = Command(
    "plan",
    run,
    SECTIONS,
    arguments=(click.Argument(["what"], type=click.Choice(list(_PLANNED))),),
    text="Say what a private run would release and find, and at which price, from public numbers "
    "alone: no data are "
    "read, and nothing is spent.",
    examples=(
        (
            "plan decompose -k 5 --epsilon 1 --delta 1e-6 --norm-bound 1 --dimension 100 "
            "--n-records 10000"
        ),
        (
            "plan mixture -k 5 --epsilon 1 --delta 1e-6 --norm-bound 20 --dimension 8 --n-records "
            "10000"
        ),
        "plan topics -k 10 --epsilon 4 --delta 1e-6 --n-records 50000 --dimension 2000 --length 50",
        "plan synthesize --schema schema.json --epsilon 1 --delta 1e-6 --n-records 5000",
        "plan classes -k 4 --epsilon 1 --delta 1e-6 --n-records 5000 --answers 3,2,4",
    ),
)

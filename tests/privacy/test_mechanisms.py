"""A registered mechanism is planned, run, offered by the command and described; what it does not
use is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from odeco.cli.decompose import decompose as command
from odeco.datasets import planted_orthogonal
from odeco.privacy import EntryLevel, MechanismPlan, RecordLevel
from odeco.privacy.found import Found
from odeco.privacy.noise import SeededNoiseForTests
from odeco.private import decompose_privately, plan_privacy
from odeco.private.mechanisms import MECHANISMS
from odeco.private.mechanisms.mechanism import Mechanism
from odeco.tensors import Components, DenseTensor

DOCS = Path(__file__).parent.parent.parent / "docs"
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PUBLIC = {"dimension": 10, "n_components": 2, **BUDGET}
ROWS = {"unit": "record", "norm_bound": 1.0}
TENSOR = planted_orthogonal(6, 2, weights=[1000.0, 900.0], rng=0).to_dense()
TOPICS = np.eye(6)[np.arange(300) % 2]


def exactly(text):
    return f"^{re.escape(text)}$"


# ---- the registry --------------------------------------------------------------------------------


class AnswersNothing(Mechanism):
    """Releases nothing, and so needs no signal at all."""

    name = "nothing"
    summary = "Nothing is released."

    def plan(self, setting):
        return MechanismPlan(self.name, 0, 0.0, 0.0)

    def run(self, task):
        k = task.n_components
        return Found(
            Components(np.zeros(k), np.eye(task.holder.dimension)[:, :k]), *np.zeros((3, k))
        )


def test_a_mechanism_in_the_registry_is_planned_run_and_chosen(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "nothing", AnswersNothing())
    plan = plan_privacy(**PUBLIC)
    assert plan.best == plan.mechanisms[0].mechanism == "nothing"
    for mechanism in ("auto", "nothing"):
        result = decompose_privately(TENSOR, 2, **BUDGET, mechanism=mechanism)
        assert result.privacy.mechanism == "nothing"
        assert result.privacy.charges == ()
    with pytest.raises(
        ValueError, match=r"^mechanism='nothing' takes tensors of order 3\. Got order 4\."
    ):
        decompose_privately(TOPICS, 2, **BUDGET, **ROWS, order=4, mechanism="nothing")


def test_mechanisms_that_need_the_same_signal_stand_in_the_order_of_the_registry(monkeypatch):
    for each in MECHANISMS.values():
        monkeypatch.setattr(
            type(each), "plan", lambda self, setting: MechanismPlan(self.name, 1, 1.0, 1.0)
        )
    plan = plan_privacy(**PUBLIC, unit="record", n_units=100, norm_bound=1.0)
    assert [each.mechanism for each in plan.mechanisms] == list(MECHANISMS)
    assert plan.best == next(iter(MECHANISMS))


@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here")
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_stands_in_the_table_of_the_documentation(name):
    assert f'| `"{name}"` | {MECHANISMS[name].summary} |' in (DOCS / "privacy.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_stands_in_the_help_of_the_command(name):
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert f"{name}: {MECHANISMS[name].summary}" in text


def test_the_command_offers_every_mechanism():
    option = next(each for each in command.params if each.name == "mechanism")
    assert list(option.type.choices) == list(MECHANISMS)


def test_a_mechanism_that_cannot_be_used_says_which_can():
    rows_needed = "mechanism='subspace' needs the second moment of rows. Got a tensor. "
    with pytest.raises(
        ValueError, match=exactly(f"{rows_needed}Take 'core', 'input', 'joint' or 'wang2016'.")
    ):
        decompose_privately(TENSOR, 2, **BUDGET, mechanism="subspace")
    order_three = (
        "mechanism='core' takes tensors of order 3. Got order 4. Take 'input', 'joint' or "
        "'wang2016'."
    )
    with pytest.raises(ValueError, match=exactly(order_three)):
        decompose_privately(TOPICS, 2, **BUDGET, **ROWS, order=4, mechanism="core")


# ---- arguments that would do nothing -------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "settings", "text"),
    [
        (
            TOPICS,
            {**ROWS, "entry_change": -5},
            "`entry_change` must go with unit='entry'. Got entry_change=-5 with unit='record'. "
            "Leave it out, or choose another unit.",
        ),
        (
            TOPICS,
            {**ROWS, "entry_limit": "q"},
            "`entry_limit` must go with unit='entry'. Got entry_limit='q' with unit='record'. "
            "Leave it out, or choose another unit.",
        ),
        (
            TOPICS,
            {**ROWS, "unit": "user", "groups": np.arange(300), "entry_change": 1.0},
            "`entry_change` must go with unit='entry'. Got entry_change=1.0 with unit='user'. "
            "Leave it out, or choose another unit.",
        ),
        (
            TENSOR,
            {"norm_bound": 1.0},
            "`norm_bound` must go with unit='record' or 'user'. Got norm_bound=1.0 with "
            "unit='entry'. Leave it out, or choose another unit.",
        ),
        (
            TENSOR,
            {"order": 3},
            "`order` must go with unit='record' or 'user'. Got order=3 with unit='entry'. Leave "
            "it out, or choose another unit.",
        ),
        (
            TENSOR,
            {"groups": np.arange(6)},
            "`groups` must be given for unit='user' and for no other. Got unit='entry' and "
            "groups. Pass one label per row, or unit='record'.",
        ),
        (
            TOPICS,
            {**ROWS, "unit": "user"},
            "`groups` must be given for unit='user' and for no other. Got unit='user' and "
            "groups=None. Pass one label per row, or unit='record'.",
        ),
        (
            TENSOR,
            {"calibration": "paper"},
            "calibration='paper' must go with mechanism='wang2016'. Got 'auto'. Leave it out.",
        ),
    ],
)
def test_what_the_unit_does_not_use_is_refused_by_its_name(data, settings, text):
    with pytest.raises(ValueError, match=exactly(text)):
        decompose_privately(data, 2, **BUDGET, **settings)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("argument", ["n_restarts", "n_iterations"])
def test_what_a_mechanism_does_not_use_is_refused_by_its_name(name, argument):
    settings = {**BUDGET, **ROWS, argument: 2}
    if argument in MECHANISMS[name].uses:
        assert decompose_privately(TOPICS, 2, **settings, mechanism=name).privacy.mechanism == name
        return
    text = (
        f"`{argument}` must go with mechanism='auto', 'wang2016' or 'joint'. Got {argument}=2 "
        f"with mechanism={name!r}. Leave it out, or choose another mechanism."
    )
    with pytest.raises(ValueError, match=exactly(text)):
        decompose_privately(TOPICS, 2, **settings, mechanism=name)


@pytest.mark.parametrize("argument", ["n_restarts", "n_iterations"])
def test_auto_takes_restarts_and_iterations_since_it_may_choose_who_uses_them(argument):
    assert decompose_privately(TENSOR, 2, **BUDGET, **{argument: 3}).privacy.mechanism == "input"


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_papers_calibration_goes_only_with_who_uses_it(name):
    settings = {**BUDGET, **ROWS, "mechanism": name}
    if "calibration" in MECHANISMS[name].uses:
        report = decompose_privately(TOPICS, 2, **settings, calibration="paper").privacy
        assert report.mechanism == f"{name}, paper's calibration"
        return
    text = f"calibration='paper' must go with mechanism='wang2016'. Got {name!r}. Leave it out."
    with pytest.raises(ValueError, match=exactly(text)):
        decompose_privately(TOPICS, 2, **settings, calibration="paper")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"n_units": 100},
            "`n_units` must go with unit='record' or 'user'. Got n_units=100 with unit='entry'. "
            "Leave it out, or choose another unit.",
        ),
        (
            {"norm_bound": 1.0},
            "`norm_bound` must go with unit='record' or 'user'. Got norm_bound=1.0 with "
            "unit='entry'. Leave it out, or choose another unit.",
        ),
        (
            {"nonnegative": True},
            "`nonnegative` must go with unit='record' or 'user'. Got nonnegative=True with "
            "unit='entry'. Leave it out, or choose another unit.",
        ),
        (
            {**ROWS, "n_units": 100, "entry_change": 2.0},
            "`entry_change` must go with unit='entry'. Got entry_change=2.0 with unit='record'. "
            "Leave it out, or choose another unit.",
        ),
        ({"entry_change": -1.0}, "`entry_change` must be a number above 0, and finite. Got -1.0."),
        ({**ROWS, "n_units": 100, "order": 2}, "`order` must be an int of at least 3. Got 2."),
    ],
)
def test_a_plan_refuses_what_its_unit_does_not_use_and_checks_the_rest(settings, text):
    with pytest.raises(ValueError, match=exactly(text)):
        plan_privacy(**PUBLIC, **settings)


# ---- holders -------------------------------------------------------------------------------------

USERS = np.arange(300) // 3
HOLDERS = {
    "entry": (
        TENSOR,
        EntryLevel,
        {"neighbour_relation": "literal", "entry_change": 2.0, "entry_limit": 1e4},
    ),
    "record": (TOPICS, RecordLevel, {"norm_bound": 2.0, "neighbour_relation": "add_remove"}),
    "user": (sparse.csr_array(TOPICS), RecordLevel, {"norm_bound": 2.0, "groups": USERS}),
}


@pytest.mark.parametrize("unit", HOLDERS)
def test_a_holder_is_decomposed_as_the_data_that_it_holds(unit):
    data, hold, settings = HOLDERS[unit]
    for name in ("auto", *MECHANISMS):
        if unit == "entry" and name in MECHANISMS and MECHANISMS[name].needs_second_moment:
            continue
        common = {**BUDGET, "mechanism": name, "rng": 0}
        held = decompose_privately(
            hold(data, **settings), 2, **common, noise=SeededNoiseForTests(1)
        )
        given = decompose_privately(
            data, 2, **common, unit=unit, **settings, noise=SeededNoiseForTests(1)
        )
        np.testing.assert_array_equal(held.vectors, given.vectors)
        np.testing.assert_array_equal(held.weights, given.weights)
        assert held.privacy == given.privacy
        assert held.privacy.unit == unit


def test_a_dense_tensor_is_decomposed_as_its_entries():
    first, second = (
        decompose_privately(each, 2, **BUDGET, rng=0, noise=SeededNoiseForTests(1))
        for each in (TENSOR, DenseTensor(TENSOR))
    )
    np.testing.assert_array_equal(first.vectors, second.vectors)


def test_the_order_of_a_holder_is_that_of_the_result():
    holder = RecordLevel(TOPICS, norm_bound=1.0, order=4)
    assert decompose_privately(holder, 2, **BUDGET).order == 4


@pytest.mark.parametrize(
    ("unit", "holder"),
    [("entry", "an EntryLevel"), ("record", "a RecordLevel"), ("user", "a RecordLevel")],
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unit", "record"),
        ("norm_bound", 1.0),
        ("groups", USERS),
        ("order", 3),
        ("neighbour_relation", "replace"),
        ("entry_change", 1.0),
        ("entry_limit", 1.0),
    ],
)
def test_what_a_holder_fixes_must_not_be_given_again(unit, holder, name, value):
    data, hold, settings = HOLDERS[unit]
    text = (
        f"`{name}` must not be given beside a holder of the data, which fixes it. Got `{name}` "
        f"and {holder}. Leave it out."
    )
    with pytest.raises(ValueError, match=exactly(text)):
        decompose_privately(hold(data, **settings), 2, **BUDGET, **{name: value})


def test_delta_must_be_below_one_over_the_number_of_units_of_a_holder():
    with pytest.raises(
        ValueError, match=r"^`delta` must be below 1/n = 0\.01 for 100 users\. Got 0\.02\."
    ):
        decompose_privately(
            RecordLevel(TOPICS, norm_bound=1.0, groups=USERS), 2, epsilon=1.0, delta=0.02
        )


# ---- the commands --------------------------------------------------------------------------------


def test_the_commands_refuse_what_their_unit_does_not_use(tmp_path):
    np.save(tmp_path / "rows.npy", TOPICS)
    run = CliRunner().invoke
    budget = ["-k", "2", "--epsilon", "1", "--delta", "1e-6"]
    rows = run(
        command,
        ["--rows", str(tmp_path / "rows.npy"), *budget, "--norm-bound", "1", "--key", "first"],
    )
    assert rows.exit_code == 2
    assert "--key is about a tensor, and --rows about rows. Pass one of them." in rows.output

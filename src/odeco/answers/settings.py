"""The settings of a model of latent classes, checked once before anything is learnt."""

from __future__ import annotations

import numbers
import os
from dataclasses import dataclass
from typing import Any, Literal

from odeco._arguments import check_choice, check_count, check_number, check_tolerance
from odeco.answers.learn import LearningSettings
from odeco.privacy import Guarantee, check_delta, check_epsilon


@dataclass(frozen=True)
class ClassSettings:
    """Checked settings.

    Attributes
    ----------
    n_components : int or "auto"
        Number of classes.
    learning : LearningSettings
        How they are learnt.
    missing_value : number, text or None
        What stands for no answer, beside NaN and the like.
    guarantee : Guarantee or None
        What is promised, if the model is to be private.
    """

    n_components: int | Literal["auto"]
    learning: LearningSettings
    missing_value: Any
    guarantee: Guarantee | None


def check_settings(model: Any) -> ClassSettings:
    """Return the checked settings of a LatentClasses, or raise."""
    k = model.n_components
    automatic = isinstance(k, str) and k == "auto"
    missing = model.missing_values
    if isinstance(missing, bool) or not (missing is None or isinstance(missing, str | numbers.Real)):
        raise ValueError(f"`missing_values` must be a number, a text or None. Got {missing!r}.")
    check_choice("handle_unknown", model.handle_unknown, ("error", "missing"))
    check_choice("neighbour_relation", model.neighbour_relation, ("replace", "add or remove"))
    learning = LearningSettings(
        n_starts=check_count("n_starts", model.n_starts),
        n_steps=check_count("max_iter", model.max_iter),
        tolerance=check_tolerance(model.tol),
        smoothing=check_number("smoothing", model.smoothing, 0.0, float("inf"), closed=True),
    )
    return ClassSettings(
        "auto" if automatic else check_count("n_components", k), learning, missing, _check_guarantee(model, automatic)
    )


def _check_guarantee(model: Any, automatic: bool) -> Guarantee | None:
    missing = [name for name in ("epsilon", "delta") if getattr(model, name) is None]
    if len(missing) == 1:
        raise ValueError(
            f"A private model needs `epsilon` and `delta`. Got no `{missing[0]}`. Pass both, or neither for a model "
            "without privacy."
        )
    if missing:
        if model.ledger is not None:
            raise ValueError(
                f"`ledger` is for private models. Got {os.fspath(model.ledger)!r} without `epsilon` and `delta`. "
                "Pass these, or leave it out."
            )
        return None
    if automatic:
        raise ValueError(
            "A private model needs a number of classes: choosing it looks at the respondents again. Got "
            "n_components='auto'. Pass a number."
        )
    check_epsilon(model.epsilon)
    check_delta(model.delta)
    return Guarantee(model.epsilon, model.delta, model.ledger)

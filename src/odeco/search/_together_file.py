"""What the file of a search for all components at once holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._schema import (
    Schema,
    Sizes,
    array,
    each,
    nothing_or,
    number,
    one_of,
    require,
    tensor_order,
    unit_vectors,
    usable_array,
    whole,
)
from odeco.search._power import PAIR, PLAN, Search

#: The arrays of the loop stand beside the others under this prefix.
LOOP = "loop_"


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    stage, loop, k = header["stage"], header["loop"], header["plan"]["n_components"]
    n_kept, n_climbers, history = sizes["pairs"], sizes["climbers"], arrays["history"]
    require(k <= sizes["d"], "there must be 1 to d components")
    require(n_kept <= k, "there must be no more components than planned")
    require(
        (n_climbers > 0) == (stage in ("climb", "polish")), "there must be climbers while they climb, and only then"
    )
    require(stage != "polish" or n_climbers == n_kept, "all components must be polished, and nothing else")
    require(bool(np.all(np.abs(arrays["signs"]) == 1)), "`signs` must be 1 or -1")
    answered = np.isfinite(history)
    require(bool(answered[:1].all()), "every climber must have had the first answer")
    require(stage != "polish" or bool(answered.all()), "all that are polished must have had every answer")
    require((stage == "loop") <= (loop is not None), "a search that goes on by the loop must hold the loop")
    require((loop is not None) <= (stage in ("loop", "done")), "a search that has not come to the loop must hold none")
    of_loop = {name.removeprefix(LOOP): value for name, value in arrays.items() if name.startswith(LOOP)}
    if loop is None:
        require(not of_loop, "there must be no arrays of a loop that has not begun")
        require((n_kept == k) >= (stage == "done"), "all components must be found at the end")
        return
    Search.SCHEMA.check(loop, of_loop, {"d": sizes["d"]})
    require(n_kept == 0, "once the loop has begun it must hold all components")
    require(loop["order"] == header["order"], "the loop must be of the order of the search")
    require(loop["plan"]["n_components"] == k, "the loop must be for the components of the search")
    require((loop["stage"] == "done") == (stage == "done"), "the search must end with its loop")


def _anything(value: Any, where: str, sizes: Sizes) -> None:
    """Require nothing: the schema of the loop looks at it."""


SCHEMA = Schema(
    {
        "plan": PLAN,
        "order": tensor_order(),
        "seed": whole(),
        "rounding": number(0, 1),
        "stage": one_of("slice", "climb", "polish", "loop", "done"),
        "round": whole(),
        "n_answered": whole(),
        "most_steps": whole(),
        "kept": each(PAIR, "pairs"),
        "loop": nothing_or(_anything),
    },
    {
        "kept_vectors": unit_vectors("pairs", "d", axis=1),
        "vectors": unit_vectors("d", "climbers"),
        **dict.fromkeys(("signs", "shifts", "values"), usable_array("climbers")),
        "history": array(None, "climbers", low=0, nan=True),
    },
    optional_arrays=dict.fromkeys((LOOP + name for name in Search.SCHEMA.arrays), _anything),
    relations=_check_state,
)

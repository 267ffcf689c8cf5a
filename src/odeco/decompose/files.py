"""Results as files: the public attributes of a result as NumPy arrays and JSON in one ``.npz``, without pickle."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from odeco._util import __version__
from odeco._util.files import faults_of, load_arrays, read_contents, save_arrays
from odeco._util.schema import (
    Rule,
    Sizes,
    array,
    each,
    flag,
    nothing_or,
    number,
    one_of,
    record,
    tensor_order,
    text,
    unit_vectors,
    whole,
)
from odeco.cp.rank import RankEvidence
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
    Structure,
)
from odeco.errors import FileFormatError
from odeco.privacy.ledger import Charge
from odeco.privacy.report import PrivacyReport
from odeco.tensors.components import Components

AnyResult = Decomposition | StreamDecomposition | AsymmetricDecomposition | PrivateDecomposition

#: The kinds of results that a file may hold, and the class of each.
RESULT_KINDS: dict[str, type[AnyResult]] = {
    "decomposition": Decomposition,
    "stream decomposition": StreamDecomposition,
    "asymmetric decomposition": AsymmetricDecomposition,
    "private decomposition": PrivateDecomposition,
    "private stream decomposition": PrivateStreamDecomposition,
}

#: The classes that may stand inside a result. A file can name no other class, so loading it calls no other.
_PARTS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (Components, RankEvidence, Structure, PrivacyReport, Charge, *RESULT_KINDS.values())
}


class _Part(NamedTuple):
    """A part of a result as a file describes it: the name of its class, and its fields."""

    name: str
    fields: dict[str, Any]


def _part(name: str) -> Rule:
    """Require a part of this class, whose fields obey the rules for it."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        if not isinstance(value, _Part) or value.name != name:
            raise ValueError(f"`{where}` must be of the class {name}")
        record(_FIELDS[name], _LATER_FIELDS.get(name))(value.fields, where, sizes)

    return check


_DEVIATIONS = array("k", low=0)

#: What the coordinates stand for, of a result with vectors.
_NAMES: dict[str, Rule] = {"names": nothing_or(each(text(), "d"))}

_BOUND: dict[str, Rule] = {"norm_bound": nothing_or(number(0))}

_PRIVATE = {
    "components": _part("Components"),
    **dict.fromkeys(("weight_errors", "angle_errors", "noise_floors"), _DEVIATIONS),
    "privacy": _part("PrivacyReport"),
}

#: The fields of every part, with what must stand in them. A number k is that of components.
_FIELDS: dict[str, dict[str, Rule]] = {
    "Components": {"weights": array("k"), "vectors": unit_vectors("d", "k"), "order": tensor_order()},
    "Decomposition": {
        "components": _part("Components"),
        "residuals": array("k", low=0, nan=True),
        "converged": array("k", kind="b"),
        "n_iterations": array("k", kind="i", low=0),
        "n_agreed": array("k", kind="i", low=0),
        "histories": each(each(number(0, infinite=True)), "k"),
        "explained": nothing_or(number()),
        "rank_evidence": nothing_or(_part("RankEvidence")),
        "n_restarts": nothing_or(whole(1)),
        "structure": nothing_or(_part("Structure")),
        "weight_errors": nothing_or(_DEVIATIONS),
        "angle_errors": nothing_or(_DEVIATIONS),
    },
    "Structure": {
        "kind": one_of("orthogonal", "independent", "unexplained"),
        "largest_cosine": number(0, 2),
        "left": one_of("nothing", "noise", "more"),
        "reason": text(),
    },
    "StreamDecomposition": {
        "components": _part("Components"),
        "weight_errors": nothing_or(_DEVIATIONS),
        "angle_errors": nothing_or(_DEVIATIONS),
        "n_rows": whole(),
    },
    "PrivateDecomposition": _PRIVATE,
    "PrivateStreamDecomposition": {**_PRIVATE, "n_rows": whole()},
    "AsymmetricDecomposition": {
        "weights": array("k", low=0),
        "factors": each(unit_vectors(None, "k")),
        "residuals": array("k", low=0, nan=True),
        "converged": array("k", kind="b"),
    },
    "RankEvidence": {
        "rank": whole(),
        "weights": array("n_judged"),
        "noise_levels": array("n_judged", low=0),
        "chances": array("n_judged", low=0, high=1),
        "confidence": number(0, 1),
        "candidates": each(whole()),
    },
    "PrivacyReport": {
        **dict.fromkeys(("epsilon", "epsilon_spent", "mu"), number(0, infinite=True)),
        "delta": number(0, 1),
        "private": flag(),
        "unit": one_of("entry", "record", "user"),
        "neighbours": text(),
        "mechanism": text(),
        "charges": each(_part("Charge")),
    },
    "Charge": {
        "mechanism": text(),
        "sensitivity": number(0),
        "scale": number(0),
        "count": whole(1),
        "data": each(text()),
    },
}

#: Fields that came later: files from before do not have them.
_LATER_FIELDS: dict[str, dict[str, Rule]] = {
    "Decomposition": _NAMES,
    "StreamDecomposition": {**_NAMES, "n_passes": whole(1), "rank_evidence": nothing_or(_part("RankEvidence"))},
    "PrivateDecomposition": {**_NAMES, **_BOUND},
    "PrivateStreamDecomposition": {**_NAMES, **_BOUND},
    "Charge": {"delta": number(0, 1)},
    "AsymmetricDecomposition": {
        "explained": nothing_or(number()),
        "rank_evidence": nothing_or(_part("RankEvidence")),
        "structure": nothing_or(_part("Structure")),
    },
}

_HEADER: dict[str, Rule] = {
    "written_by": record(dict.fromkeys(("odeco", "numpy", "scipy", "python"), text())),
    "command": nothing_or(text()),
}


def save_result(result: AnyResult, path: str | os.PathLike[str], *, command: str | None = None) -> None:
    """Write a result to an ``.npz`` file, atomically and without pickle; `load_result` gives it back bit by bit.

    Parameters
    ----------
    result : Decomposition, StreamDecomposition, AsymmetricDecomposition or PrivateDecomposition
        The result. Its public attributes are written and nothing else, so that the file of a private result holds only
        what may be published.
    path : path
        Where to write. No suffix is added to the name.
    command : str, optional
        The command that makes the result again. It is kept in the header.

    Notes
    -----
    Every array is an entry under its own name (``weights``, ``vectors``, ``residuals``, …). The entry ``header`` is
    JSON: its key ``result`` holds the fields that are not arrays, and ``written_by`` the versions of what computed the
    result.

    Examples
    --------
    >>> import numpy as np, odeco, tempfile
    >>> result = odeco.decompose(odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     odeco.save_result(result, f"{folder}/result.npz")
    ...     odeco.load_result(f"{folder}/result.npz").weights
    array([3., 2.])
    """
    kind = next((kind for kind, each in RESULT_KINDS.items() if type(result) is each), None)
    if kind is None:
        raise TypeError(
            f"A result that is saved must be of {', '.join(each.__name__ for each in RESULT_KINDS.values())}. "
            f"Got {type(result).__name__}. Save its `components` instead, if it has some."
        )
    arrays: dict[str, Any] = {}
    described = _describe(result, "", arrays)
    header = {"written_by": versions(), "command": command, "result": described}
    save_arrays(path, kind, header, arrays, readable=True)


def load_result(path: str | os.PathLike[str]) -> AnyResult:
    """Read what `save_result` wrote. The file may come from anyone: nothing in it is executed."""
    kind = read_contents(path).kind
    if kind not in RESULT_KINDS:
        raise FileFormatError(f"{path} must hold a result. It holds {kind}. Load it with the class that saved it.")
    header, arrays = load_arrays(path, kind)
    with faults_of(path, "Write it again with save_result()."):
        described = _read(header.pop("result"), arrays)
        record(_HEADER)(header, "", {})
        _part(RESULT_KINDS[kind].__name__)(described, "result", {})
        result: AnyResult = _built(described)
    return result


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "odeco": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def _describe(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Return `value` as JSON, and put its arrays into `arrays`."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if dataclasses.is_dataclass(value):
        # Most readers want the arrays of the components themselves, so these get the plain names.
        prefix = "" if name in ("", "components") else f"{name}_"
        fields = {
            field.name: _describe(getattr(value, field.name), prefix + field.name, arrays)
            for field in dataclasses.fields(value)
        }
        return {"object": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_describe(each, f"{name}_{number}", arrays) for number, each in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no infinity
    return value


def _read(described: Any, arrays: dict[str, Any]) -> Any:
    """Return what `_describe` described, with parts that are checked and built later."""
    if not isinstance(described, dict):
        return described
    if "array" in described:
        return arrays[described["array"]]
    if "tuple" in described:
        return tuple(_read(member, arrays) for member in described["tuple"])
    if "float" in described:
        return float(described["float"])
    return _Part(described["object"], {name: _read(value, arrays) for name, value in described["fields"].items()})


def _built(described: Any) -> Any:
    """Return a value whose parts are objects of their classes."""
    if isinstance(described, _Part):
        return _PARTS[described.name](**{name: _built(value) for name, value in described.fields.items()})
    return tuple(map(_built, described)) if isinstance(described, tuple) else described

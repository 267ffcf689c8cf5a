"""Results as files: the public attributes of a result as NumPy arrays and JSON in one ``.npz``, without pickle."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from odeco._files import load_arrays, read_contents, save_arrays
from odeco._version import __version__
from odeco.components import Components
from odeco.errors import FileFormatError
from odeco.privacy import Charge, PrivacyReport
from odeco.rank import RankEvidence
from odeco.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
)

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
    each.__name__: each for each in (Components, RankEvidence, PrivacyReport, Charge, *RESULT_KINDS.values())
}
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


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
    try:
        result = _restore(header["result"], arrays)
        if type(result) is not RESULT_KINDS[kind]:
            raise TypeError("it is not of the kind that it names")
        _check_sizes(result)
    except _DAMAGED as error:
        raise FileFormatError(
            f"{path} is not a complete odeco file: {error}. Write it again with save_result()."
        ) from error
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


def _restore(described: Any, arrays: dict[str, Any]) -> Any:
    """Return what `_describe` described."""
    if not isinstance(described, dict):
        return described
    if "array" in described:
        return arrays[described["array"]]
    if "tuple" in described:
        return tuple(_restore(each, arrays) for each in described["tuple"])
    if "float" in described:
        return float(described["float"])
    fields = {name: _restore(each, arrays) for name, each in described["fields"].items()}
    return _PARTS[described["object"]](**fields)


def _check_sizes(result: AnyResult) -> None:
    """Raise if an array of a result does not have one number for each of its components."""
    if not isinstance(result, AsymmetricDecomposition) and not isinstance(result.components, Components):
        raise TypeError("it has no components")
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if isinstance(value, np.ndarray) and (value.shape != result.weights.shape or value.dtype.kind not in "fiub"):
            raise ValueError(f"`{field.name}` must have a number for each component")
    if isinstance(result, AsymmetricDecomposition):
        for factor in result.factors:
            if factor.ndim != 2 or factor.shape[1:] != result.weights.shape:
                raise ValueError("`factors` must have a column for each component")

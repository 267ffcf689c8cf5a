"""Results as files: the public attributes of a result as NumPy arrays in one ``.npz``, without
pickle.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
import scipy

from odeco._util import __version__
from odeco._util.files import faults_of, load_arrays, read_contents, save_arrays
from odeco._util.state import Rule, check_names, nothing_or, record, text
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
)
from odeco.errors import FileFormatError
from odeco.privacy.report import PrivacyReport

AnyResult = Decomposition | StreamDecomposition | AsymmetricDecomposition | PrivateDecomposition

#: The kinds of results that a file may hold, and the class of each.
RESULT_KINDS: dict[str, type[AnyResult]] = {
    "decomposition": Decomposition,
    "stream decomposition": StreamDecomposition,
    "asymmetric decomposition": AsymmetricDecomposition,
    "private decomposition": PrivateDecomposition,
    "private stream decomposition": PrivateStreamDecomposition,
}

_HEADER: dict[str, Rule] = {
    "written_by": record(dict.fromkeys(("odeco", "numpy", "scipy", "python"), text())),
    "command": nothing_or(text()),
}


def save_result(
    result: AnyResult, path: str | os.PathLike[str], *, command: str | None = None
) -> None:
    """Write a result to an ``.npz`` file, atomically and without pickle; `load_result` gives it
    back bit by bit.

    Parameters
    ----------
    result : Decomposition, StreamDecomposition, AsymmetricDecomposition or PrivateDecomposition
        The result. Its public attributes are written and nothing else, so that the file of a
        private result holds only what may be published.
    path : path
        Where to write. No suffix is added to the name.
    command : str, optional
        The command that makes the result again. It is kept in the header.

    Notes
    -----
    Every field is an entry under its own name (``components.weights``, ``components.vectors``,
    ``residuals``, …); a number is an array without axes. The entry ``header`` is JSON:
    ``written_by`` has the versions of what computed the result, and ``privacy`` the guarantee of a
    private one.

    Examples
    --------
    >>> import numpy as np, odeco, tempfile
    >>> result = odeco.decompose(
    ...     odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, rng=0
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     odeco.save_result(result, f"{folder}/result.npz")
    ...     odeco.load_result(f"{folder}/result.npz").weights
    array([3., 2.])
    """
    kind = next((kind for kind, each in RESULT_KINDS.items() if type(result) is each), None)
    if kind is None:
        raise TypeError(
            "A result that is saved must be of "
            f"{', '.join(each.__name__ for each in RESULT_KINDS.values())}. Got "
            f"{type(result).__name__}. Save its `components` instead, if it has some."
        )
    header = {"written_by": versions(), "command": command}
    if isinstance(result, PrivateDecomposition):
        header["privacy"] = result.privacy.to_json()
    save_arrays(path, kind, header, result.to_arrays(""), readable=True)


def load_result(path: str | os.PathLike[str]) -> AnyResult:
    """Read what `save_result` wrote. The file may come from anyone: nothing in it is executed.

    Parameters
    ----------
    path : path
        The file.
    """
    kind = read_contents(path).kind
    if kind not in RESULT_KINDS:
        raise FileFormatError(
            f"{path} must hold a result. It holds {kind}. Load it with the class that saved it."
        )
    header, arrays = load_arrays(path, kind)
    of = RESULT_KINDS[kind]
    with faults_of(path, "Write it again with save_result()."):
        private = issubclass(of, PrivateDecomposition)
        record({**_HEADER, "privacy": text()} if private else _HEADER)(header, "", {})
        parts = {"privacy": PrivacyReport.from_json(header["privacy"])} if private else {}
        result: AnyResult = of.from_arrays(arrays, "", parts=parts)
        check_names(arrays, {"": result})
    return result


def write_report(result: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a result or a fitted model as one HTML page that needs no network.

    Parameters
    ----------
    result : Decomposition or another result, or a fitted model of `odeco.models`
        What the page shows.
    path : path
        Where to write. An old file is replaced only by a complete one.
    **options
        ``title`` for all; for results those of `odeco.decompose.page.write_report`; for models
        those of their own `write_report`, such as the ``rows`` to show.

    Examples
    --------
    >>> import numpy as np, odeco, tempfile
    >>> result = odeco.decompose(
    ...     odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, rng=0
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     odeco.write_report(result, f"{folder}/page.html", title="Two components")
    """
    if isinstance(result, AnyResult):
        from odeco.decompose import page  # Matplotlib takes half a second, and may be missing

        page.write_report(result, path, **options)
    elif hasattr(result, "write_report"):
        result.write_report(path, **options)
    else:
        raise TypeError(
            f"A page is made of a result or a fitted model of odeco. Got {type(result).__name__}. "
            "Pass what odeco.decompose or the fit of a model returned."
        )


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "odeco": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }

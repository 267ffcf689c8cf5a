"""Numbers of a solver as those of the rows: a run divides all means by a power of two, and
multiplies results by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from odeco._util.arguments import put_back
from odeco.cp.rank import RankEvidence, no_signal_error
from odeco.errors import RankError, StreamEndedError
from odeco.tensors.components import Components


def components_of_rows(found: Components, exponent: int) -> Components:
    """Return components with their weights times 2^exponent."""
    weights = put_back(found.weights, exponent, "weights")
    return Components(weights, found.vectors, found.order)


def evidence_of_rows(evidence: RankEvidence, exponent: int) -> RankEvidence:
    """Return the evidence for a rank in the same way."""
    levels = put_back(evidence.noise_levels, exponent, "noise levels")
    return replace(
        evidence, weights=put_back(evidence.weights, exponent, "weights"), noise_levels=levels
    )


def check_signal(evidence: RankEvidence | None, exponent: int, nothing: Components) -> None:
    """Raise if the number of components was selected automatically, and is 0."""
    if evidence is None or evidence.rank:
        return
    evidence = evidence_of_rows(evidence, exponent)
    advice = ""
    if nothing.order % 2:
        advice = (
            " Rows that are symmetric about zero have no odd moments: order=4 with "
            "moment='cumulant' finds their sources."
        )
    raise no_signal_error(evidence.weights, evidence.noise_levels, nothing, advice)


@contextmanager
def scaled_errors(exponent: int) -> Iterator[None]:
    """Give components in errors of the body the weights of the rows."""
    try:
        yield
    except (RankError, StreamEndedError) as error:
        if error.found is not None and error.found.n_components:
            error.found = components_of_rows(error.found, exponent)
        raise

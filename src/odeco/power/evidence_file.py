"""The evidence for a rank as named arrays, for the files of searches that carry it along."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.schema import Rule, array, usable_array
from odeco.cp.rank import RankEvidence

#: What `evidence_to_arrays` gives; all of them, or none.
EVIDENCE_ARRAYS: dict[str, Rule] = {
    "judged_weights": usable_array("n_judged"),
    "judged_levels": usable_array("n_judged", low=0),
    "judged_chances": array("n_judged", low=0, high=1),
    "judged_ranks": array(None, kind="i", low=0),
    "judged_confidence": array(low=0, high=1),
}


def evidence_to_arrays(evidence: RankEvidence | None) -> dict[str, Any]:
    """Return the evidence as named arrays; none if there is no evidence."""
    if evidence is None:
        return {}
    return {
        "judged_weights": evidence.weights,
        "judged_levels": evidence.noise_levels,
        "judged_chances": evidence.chances,
        "judged_ranks": np.array(evidence.candidates, dtype=np.int64),
        "judged_confidence": np.array(evidence.confidence),
    }


def evidence_from_arrays(arrays: dict[str, Any]) -> RankEvidence | None:
    """Return the evidence that `evidence_to_arrays` described."""
    if "judged_ranks" not in arrays:
        return None
    ranks = tuple(int(rank) for rank in arrays["judged_ranks"])
    return RankEvidence(
        ranks[0],
        arrays["judged_weights"],
        arrays["judged_levels"],
        arrays["judged_chances"],
        float(arrays["judged_confidence"]),
        ranks,
    )


def evidence_is_whole(arrays: dict[str, Any]) -> bool:
    """Return whether all arrays of evidence are there, with at least one rank, or none."""
    present = EVIDENCE_ARRAYS.keys() & arrays.keys()
    return not present or (len(present) == len(EVIDENCE_ARRAYS) and arrays["judged_ranks"].size > 0)

"""What is said about a result as a whole, in sentences: below its table, in its summary, on its page."""

from __future__ import annotations

from typing import Any


def remarks_on(result: Any) -> list[str]:
    """Return what is known of a result as a whole, a sentence a line."""
    remarks = []
    if (explained := getattr(result, "explained", None)) is not None:
        remarks.append(f"explained: {explained:.4%} of the squared norm")
    if (evidence := getattr(result, "rank_evidence", None)) is not None:
        remarks.append(f"rank {evidence.rank} chosen; confidence that it is right: {evidence.confidence:.4f}")
    if (structure := getattr(result, "structure", None)) is not None:
        remarks.append(f"{structure.kind}: {structure.reason}")
    if getattr(result, "n_rows", None) is not None:
        remarks.append(f"rows read: {rows_read(result)}")
    if (clipping := clipping_sentence(result)) is not None:
        remarks.append(clipping)
    if (privacy := getattr(result, "privacy", None)) is not None:
        remarks.append(privacy_sentence(privacy))
    return remarks


def rows_read(result: Any) -> str:
    """Return the number of rows, and how often all of them were read if that was more than once."""
    passes = getattr(result, "n_passes", 1)
    return f"{result.n_rows:,}" + (f", in {passes:,} passes" if passes > 1 else "")


def privacy_sentence(privacy: Any) -> str:
    """Return the guarantee in one sentence."""
    if not privacy.private:
        return "NOT private: the noise did not come from the operating system."
    budget = f"({privacy.epsilon:g}, {privacy.delta:g})-differentially private for one {privacy.unit}"
    spent = f"spent ε = {privacy.epsilon_spent:.4g}, μ = {privacy.mu:.4g}"
    return f"{budget} ({privacy.neighbours}); mechanism {privacy.mechanism}; {spent}"


def clipping_sentence(result: Any) -> str | None:
    """Say what the bound on the norm of rows does to weights; None where rows were not clipped.

    Whether a row was clipped is a fact about the data that was not released. That clipping shortens, and by how much
    for a row of a given length, is arithmetic.
    """
    bound = getattr(result, "norm_bound", None)
    if bound is None:
        return None
    order = result.order
    return (
        f"clipped: every row longer than {bound:g} was scaled down to it, which makes weights too small; ± is the "
        f"noise alone and does not include that. A row twice as long as the bound counts as 1/{2**order} of itself. "
        "How many such rows there were was not released"
    )

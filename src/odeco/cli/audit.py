"""``odeco audit``: attack a privacy configuration as its strongest adversary would."""

from __future__ import annotations

import click

from odeco.cli import options as _options
from odeco.cli.output import console, emit_json
from odeco.privacy.audit import audit, worst_entries, worst_records
from odeco.privacy.calibration import epsilon_of, gdp_mu


@click.command("audit")
@click.option(
    "--unit",
    type=click.Choice(["entry", "record"]),
    default="record",
    show_default=True,
    help="Whom the guarantee protects.",
)
@click.option(
    "--dimension", type=click.IntRange(3), default=10, show_default=True, metavar="D", help="Size of the tensor."
)
@click.option("--n-records", type=int, metavar="N", help="For --unit record: number of rows; 1000 by default.")
@click.option("--norm-bound", type=float, metavar="B", help="For --unit record: largest norm of a row; 1 by default.")
@click.option(
    "--neighbour-relation", metavar="NAME", help="distinct or literal (entries); replace or add_remove (rows)."
)
@click.option("--epsilon", type=float, help="The ε of the guarantee; with --delta.")
@click.option("--delta", type=float, help="The δ of the guarantee; with --epsilon.")
@click.option("--mu", type=float, help="The budget as the μ of a Gaussian mechanism, instead.")
@click.option("--n-images", type=int, default=3, show_default=True, help="Number of images that the adversary sees.")
@click.option("--n-runs", type=int, default=100_000, show_default=True, help="Number of transcripts of each neighbour.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Confidence of the bound.")
@click.option(
    "--noise-share",
    type=float,
    default=1.0,
    show_default=True,
    help="Test the auditor: 0.95 makes the noise 5 % too small without telling the ledger, and must be noticed.",
)
@_options.json_output
@click.pass_context
def command(
    context: click.Context,
    unit: str,
    dimension: int,
    n_records: int | None,
    norm_bound: float | None,
    neighbour_relation: str | None,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    n_images: int,
    n_runs: int,
    confidence: float,
    noise_share: float,
    as_json: bool,
) -> None:
    r"""Attack a configuration as its strongest adversary would, and certify a lower bound on the privacy loss.

    The adversary knows everything but the noise: two data sets that differ as much as neighbours can, every query, and
    every scale. Correct code comes out a little below its claim. The exit code is 1 if the loss is larger than claimed.
    The bound lies about 4/√runs below the truth, so that a small budget needs many runs.

    \b
    Examples:
      odeco audit --epsilon 4 --delta 1e-6 --unit record --n-records 1000
      odeco audit --mu 2 --unit entry --neighbour-relation literal --json
      odeco audit --mu 2 --noise-share 0.95
    """
    if (mu is None) == (epsilon is None) or (epsilon is None) != (delta is None):
        raise click.UsageError("The budget must be given once: as --epsilon with --delta, or as --mu.")
    budget = gdp_mu(epsilon, delta) if epsilon is not None and delta is not None else float(mu or 0.0)
    if unit == "entry":
        if n_records is not None or norm_bound is not None:
            raise click.UsageError("--n-records and --norm-bound go with --unit record. Leave them out.")
        pair = worst_entries(dimension, neighbour_relation or "distinct")  # type: ignore[arg-type]  # checked there
    else:
        rows = 1000 if n_records is None else n_records
        bound = 1.0 if norm_bound is None else norm_bound
        pair = worst_records(dimension, rows, bound, neighbour_relation or "replace")  # type: ignore[arg-type,assignment]
    found = audit(*pair, mu=budget, n_images=n_images, n_runs=n_runs, confidence=confidence, noise_share=noise_share)
    if as_json:
        emit_json(
            {
                "kind": "audit",
                "claimed_mu": found.claimed_mu,
                "certified_mu": found.certified_mu,
                "share": found.share,
                "confidence": found.confidence,
                "n_runs": found.n_runs,
                "violated": found.violated,
            }
        )
    else:
        _print(found.claimed_mu, found.certified_mu, found.share, confidence, n_runs)
        if delta is not None:
            console().print(
                f"as ε at δ = {delta:g}: at least {epsilon_of(found.certified_mu, delta):.4g}, claimed {epsilon:g}"
            )
        verdict = (
            "VIOLATED: the privacy loss is larger than claimed."
            if found.violated
            else "No violation found; an audit can refute a guarantee, never prove it."
        )
        console().print(verdict)
    context.exit(1 if found.violated else 0)


def _print(claimed: float, certified: float, share: float, confidence: float, n_runs: int) -> None:
    console().print(f"claimed   μ = {claimed:.4f}")
    console().print(
        f"certified μ ≥ {certified:.4f}  ({share:.1%} of the claim; {confidence:.0%} confidence, {n_runs:,} runs)"
    )

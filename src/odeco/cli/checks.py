"""``odeco reproduce``, ``odeco audit`` and ``odeco bench``: check the paper, a privacy guarantee and the speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table
from scipy import sparse

from odeco._util.threads import n_cores
from odeco.cli import options as _options
from odeco.cli.app import Interrupted, command_line
from odeco.cli.output import Output, as_cell, console, deliver, emit_json, note
from odeco.datasets import planted_orthogonal
from odeco.display.progress import progress_bar
from odeco.online.sums import RowSum
from odeco.privacy.audit import audit as audit_release
from odeco.privacy.audit import worst_entries, worst_records
from odeco.privacy.calibration import epsilon_of, gdp_mu
from odeco.reproduction import NAMES, load
from odeco.tensors.dense import DenseTensor

if TYPE_CHECKING:
    from odeco.reproduction.report import Report


COLOURS = {"holds": "green", "holds up to logs": "yellow", "does not hold as stated": "red"}

HELP = """Run the paper's figure and claims again, and say which hold.

\b
figure1     noise that Algorithm 1 tolerates, in nine panels
streaming   error against rows and dimension, memory
privacy     signal that private mechanisms need
whitening   Algorithm 1 compared with methods that take slices
all         all of these, on one page
"""

EPILOG = """
Finished trials are kept in --out: an interrupted run continues when it is started again. Results do not depend on the
number of processes. figure1 takes about ten minutes on two cores, the others less; --quick at most two minutes.
"""


@click.command("reproduce", help=HELP, epilog=EPILOG)
@click.argument("experiment", type=click.Choice([*NAMES, "all"]), metavar="|".join([*NAMES, "all"]))
@click.option("--quick", is_flag=True, help="Fewer trials and smaller dimensions.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("odeco-reproduce"),
    metavar="FOLDER",
    help="Folder for tables, figures and the page.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Equal seeds give bit-identical results.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Worker processes; by default one per core.")
@_options.json_output
def reproduce(experiment: str, quick: bool, out: Path, seed: int, processes: int | None, as_json: bool) -> None:
    """Run experiments, write their files and print their findings."""
    from odeco.reproduction.output import document, experiment_files, write_experiments_page  # needs Matplotlib

    out.mkdir(parents=True, exist_ok=True)
    names = NAMES if experiment == "all" else (experiment,)
    try:
        reports = [_run(name, quick, seed, out, processes or n_cores()) for name in names]
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted. Finished trials are kept. To go on: {command_line()}") from None
    page = out / ("index.html" if experiment == "all" else f"{experiment}.html")
    files: dict[Path, Callable[[Path], object]] = {page: lambda path: write_experiments_page(reports, path)}
    for report in reports:
        files |= experiment_files(report, out)

    def show() -> None:
        if as_json:
            emit_json({**document(reports), "files": [str(path) for path in files]})
        else:
            _print_findings(reports)

    again = f"Finished trials are kept in {out}: run the command again"
    deliver(show, *(Output(path, write) for path, write in files.items()), again=again)


def _run(name: str, quick: bool, seed: int, folder: Path, n_processes: int) -> Report:
    experiment = load(name)
    with progress_bar(only_on_terminal=True) as show_progress:

        def advance(n_done: int, n_tasks: int) -> None:
            show_progress(experiment.title, n_done, n_tasks, f"{n_done} of {n_tasks} trials")

        report = experiment.run(quick=quick, seed=seed, folder=folder, n_processes=n_processes, progress=advance)
    note(f"{experiment.title}: {len(report.records):,} records")
    return report


def _print_findings(reports: Sequence[Report]) -> None:
    if any(report.quick for report in reports):
        console().print(
            "[yellow]A quick run[/yellow]: fewer trials and smaller dimensions; verdicts may differ from those "
            "of a whole run, without --quick."
        )
    for report in reports:
        console().print(f"\n{report.title}", markup=False)
        for finding in report.findings:
            colour = COLOURS[finding.verdict]
            console().print(f"\n{finding.claim}: [{colour}]{finding.verdict}[/{colour}]")
            table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            for what, text in (("claim", finding.says), ("predicted", finding.rule), ("measured", finding.measured)):
                table.add_row(f"  {what}", as_cell(text))
            console().print(table)
        console().print(f"\n[dim]{report.command}[/dim]")


@click.command("audit")
@click.option("--unit", type=click.Choice(["entry", "record"]), default="record", help="Whom the guarantee protects.")
@click.option("--dimension", type=click.IntRange(3), default=10, metavar="D", help="Size of the tensor.")
@click.option("--n-records", type=int, metavar="N", help="For --unit record: number of rows; 1000 by default.")
@click.option("--norm-bound", type=float, metavar="B", help="For --unit record: largest norm of a row; 1 by default.")
@_options.neighbour_relation
@click.option("--epsilon", type=float, help="The ε of the guarantee; with --delta.")
@click.option("--delta", type=float, help="The δ of the guarantee; with --epsilon.")
@click.option("--mu", type=float, help="The budget as the μ of a Gaussian mechanism, instead.")
@click.option("--n-images", type=int, default=3, help="Number of images that the adversary sees.")
@click.option("--n-runs", type=int, default=100_000, help="Number of transcripts of each neighbour.")
@click.option("--confidence", type=float, default=0.95, help="Confidence of the bound.")
@click.option(
    "--noise-share", type=float, default=1.0, help="Test the auditor: 0.95 must be noticed as too little noise."
)
@_options.json_output
def audit(
    unit: str,
    dimension: int,
    n_records: int | None,
    norm_bound: float | None,
    neighbour_relation: Any,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    as_json: bool,
    **settings: Any,
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
    _options.check_usage(
        {
            "The budget must be given once: as --epsilon with --delta, or as --mu.": (mu is None) == (epsilon is None)
            or (epsilon is None) != (delta is None),
            "--n-records and --norm-bound go with --unit record. Leave them out.": unit == "entry"
            and (n_records is not None or norm_bound is not None),
        }
    )
    budget = gdp_mu(epsilon, delta) if epsilon is not None and delta is not None else float(mu or 0.0)
    if unit == "entry":
        pair: Any = worst_entries(dimension, neighbour_relation or "distinct")
    else:
        rows, bound = 1000 if n_records is None else n_records, 1.0 if norm_bound is None else norm_bound
        pair = worst_records(dimension, rows, bound, neighbour_relation or "replace")
    found = audit_release(*pair, mu=budget, **settings)
    if as_json:
        facts = ("claimed_mu", "certified_mu", "share", "confidence", "n_runs", "violated")
        emit_json({"kind": "audit", **{name: getattr(found, name) for name in facts}})
    else:
        console().print(f"claimed   μ = {found.claimed_mu:.4f}")
        console().print(
            f"certified μ ≥ {found.certified_mu:.4f}  ({found.share:.1%} of the claim; {found.confidence:.0%} "
            f"confidence, {found.n_runs:,} runs)"
        )
        if delta is not None:
            certified = epsilon_of(found.certified_mu, delta)
            console().print(f"as ε at δ = {delta:g}: at least {certified:.4g}, claimed {epsilon:g}")
        verdict = "No violation found; an audit can refute a guarantee, never prove it."
        console().print("VIOLATED: the privacy loss is larger than claimed." if found.violated else verdict)
    click.get_current_context().exit(1 if found.violated else 0)


N_CANDIDATES = 32

Line = tuple[str, str, float, str, float]


@click.command("bench")
@click.option("--quick", is_flag=True, help="Smaller problems, fewer repeats: a few seconds.")
@_options.threads
@_options.json_output
def bench(quick: bool, threads: int | None, as_json: bool) -> None:
    r"""Measure this machine: matrix products, images of a tensor, rows of a stream; about twenty seconds.

    Every line is compared with the bare matrix products that the work consists of, measured alternately on the same
    numbers; the best time of each counts. Above 1 the library is faster than the products, because it uses symmetry or
    more threads.

    \b
    Examples:
      odeco bench
      odeco bench --quick --json
    """
    lines: list[Line] = []
    jobs = _jobs(quick)
    with _options.limited(threads), progress_bar(only_on_terminal=True) as show_progress:
        for number, job in enumerate(jobs):
            show_progress("measuring", number, len(jobs))
            lines.append(job(3 if quick else 10))
    if as_json:
        keys = ("work", "what", "rate", "unit", "beside_bare_products")
        emit_json({"kind": "bench", "lines": [dict(zip(keys, line, strict=True)) for line in lines]})
        return
    table = Table("work", "on", "rate", "unit", "beside bare products", box=None, pad_edge=False)
    for column in (table.columns[2], table.columns[4]):
        column.justify = "right"
    for work, what, rate, unit, share in lines:
        table.add_row(work, what, f"{rate:,.3g}" if rate < 1000 else f"{rate:,.0f}", unit, f"{share:.2f}")
    console().print(table)


def _jobs(quick: bool) -> list[Callable[[int], Line]]:
    """Return the measurements; each takes the number of repeats."""
    size, dimensions, n_rows = (1000, (50, 100), 20_000) if quick else (2000, (100, 200), 200_000)
    kinds = (np.float64, np.float32)
    return [
        *(partial(_product, size, kind) for kind in kinds),
        *(partial(_image, d, kind) for d in dimensions for kind in kinds),
        *(partial(_dense_rows, n_rows, 200, kind) for kind in kinds),
        partial(_sparse_rows, n_rows // 4, 20_000),
    ]


def _best(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the best time of each, measured alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, kept in zip((first, second), times, strict=True):
            time.sleep(0.1)  # threads of the linear algebra library spin for a while after a product
            begun = time.perf_counter()
            work()
            kept.append(time.perf_counter() - begun)
    return min(times[0]), min(times[1])


def _product(size: int, kind: type, repeats: int) -> Line:
    square: np.ndarray[Any, Any] = np.random.default_rng(0).standard_normal((size, size)).astype(kind)
    seconds, _ = _best(lambda: square @ square, lambda: None, repeats)
    return "matrix product", f"{size:,} x {size:,} {np.dtype(kind)}", 2 * size**3 / seconds / 1e9, "GFLOP/s", 1.0


def _image(dimension: int, kind: type, repeats: int) -> Line:
    entries: np.ndarray[Any, Any] = planted_orthogonal(dimension, 3, rng=0).to_dense().astype(kind)
    tensor, unfolding = DenseTensor(entries), entries.reshape(dimension**2, dimension)
    block = np.random.default_rng(0).standard_normal((dimension, N_CANDIDATES))
    typed: np.ndarray[Any, Any] = block.astype(kind)

    theirs, own = _best(lambda: unfolding @ typed, lambda: tensor.image(block), repeats)
    what = f"d = {dimension}, {N_CANDIDATES} candidates, {np.dtype(kind)}"
    return "images of a tensor", what, N_CANDIDATES / own, "images/s", theirs / own


def _dense_rows(n_rows: int, dimension: int, kind: type, repeats: int) -> Line:
    rows: np.ndarray[Any, Any] = np.random.default_rng(0).standard_normal((n_rows, dimension)).astype(kind)
    what = f"d = {dimension}, {N_CANDIDATES} candidates, {np.dtype(kind)}"
    return "rows of a stream, dense", what, *_rows(rows, repeats)


def _sparse_rows(n_rows: int, dimension: int, repeats: int) -> Line:
    per_row, generator = 100, np.random.default_rng(0)
    indices = np.sort(generator.integers(dimension, size=(n_rows, per_row), dtype=np.int32), axis=1).ravel()
    pointers = np.arange(0, n_rows * per_row + 1, per_row, dtype=np.int32)
    data = generator.standard_normal(n_rows * per_row).astype(np.float32)
    rows = sparse.csr_array((data, indices, pointers), shape=(n_rows, dimension))
    what = f"d = {dimension:,}, {per_row} numbers per row, float32"
    return "rows of a stream, CSR", what, *_rows(rows, max(2, repeats // 3))


def _rows(rows: Any, repeats: int) -> tuple[float, str, float]:
    theirs, own = rows_beside_products(rows, repeats)
    return rows.shape[0] / own, "rows/s", theirs / own


def rows_beside_products(rows: Any, repeats: int) -> tuple[float, float]:
    """Return the seconds that the two bare products take, and those of an image of the rows' moment."""
    block = np.random.default_rng(0).standard_normal((rows.shape[1], N_CANDIDATES))
    typed = block.astype(rows.dtype)

    def bare() -> object:
        overlaps = rows @ typed
        return rows.T @ np.square(overlaps, out=overlaps)

    def ours() -> object:
        total = RowSum("image", block, order=3)
        total.update(rows)
        return total.total()

    return _best(bare, ours, repeats)

"""``odeco decompose`` and ``odeco stream``: the components of a tensor in a file, or of the moment of rows in files."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

import odeco
from odeco.cli import options as _options
from odeco.cli.app import Interrupted, Interrupts, Terminated, command_line
from odeco.cli.options import check_selection, load_names, load_tensor
from odeco.cli.output import Outputs, columns_called, deliver_result, note
from odeco.display.progress import progress_bar
from odeco.io.coerce import as_source
from odeco.io.source import BatchSource
from odeco.online.settings import DEFAULT_MEMORY, DEFAULT_MOMENT, MOMENTS
from odeco.online.weights import WeightedSource


@click.command("decompose")
@click.argument("file", type=_options.FILE)
@_options.n_components_or_auto
@_options.power_method
@click.option("--tol", type=float, default=1e-10, help="Stop at this relative residual; 0 runs all iterations.")
@click.option(
    "--method",
    type=click.Choice(["auto", "cp", "power"]),
    default="auto",
    help="cp: fit all components together, orthogonal or not. power: Algorithm 1, for orthogonal ones. auto: cp, "
    "unless another option needs power.",
)
@click.option(
    "--whiten",
    type=click.Choice(["tensor", "slice"]),
    help="Whiten before the power method: by the images of the tensor, or by one slice.",
)
@click.option("--symmetrize", is_flag=True, help="Average over all permutations of the axes first.")
@click.option("--asymmetric", is_flag=True, help="Decompose a d1 x d2 x … tensor into terms a ⊗ b ⊗ … instead.")
@click.option("--key", metavar="NAME", help="Which array of a .npz archive.")
@_options.seed
@_options.outputs
def decompose(
    file: Path, symmetrize: bool, asymmetric: bool, key: str | None, seed: int, outputs: Outputs, **settings: Any
) -> None:
    r"""Decompose the symmetric tensor in FILE (.npy or .npz, order 3 or more) into weights and unit vectors.

    \b
    Examples:
      odeco decompose tensor.npy -k 5
      odeco decompose tensor.npy -k auto --out result.npz --report page.html
      odeco decompose tensor.npz --key T -k 3 --whiten tensor --json
      odeco decompose unequal.npy --asymmetric -k auto
    """
    if asymmetric:
        whiten = settings.pop("whiten")
        _options.check_usage(
            {
                "--names is for the one axis of a symmetric tensor, and does not go with --asymmetric.": outputs.names,
                "--asymmetric goes with neither --symmetrize nor --whiten.": symmetrize or whiten,
            }
        )
    with _options.limited(outputs.threads):
        tensor = load_tensor(file, key)
        labels = load_names(outputs.names, tensor.shape[0] if tensor.ndim else 0)
        if symmetrize:
            tensor = odeco.symmetrize(tensor)
        with progress_bar(only_on_terminal=True) as show_progress:
            show_progress("checking the tensor")
            wanted = settings["n_components"]

            def show(search: Any) -> None:
                found = search.components.n_components
                show_progress(search.status, found, None if wanted == "auto" else wanted, f"{found} found")

            recipe: Any = odeco.decompose_asymmetric if asymmetric else odeco.decompose
            result = recipe(tensor, callback=show, rng=seed, **settings)
    if labels is not None:
        result = result.with_names(labels)
    deliver_result(result, outputs, title=f"Components of {file.name}")


@click.command("stream")
@click.argument("files", type=_options.FILE, nargs=-1, required=True, metavar="FILE...")
@_options.n_components_or_auto
@click.option(
    "--method",
    type=click.Choice(["auto", "core", "entries", "power"]),
    default="auto",
    help="core: search a block of rows, refine with all. entries: the whole moment at once, up to 400 columns. "
    "auto: entries for up to 100 columns, else core. power: Algorithm 2 of the paper, fresh rows each iteration.",
)
@click.option(
    "--memory",
    type=float,
    default=DEFAULT_MEMORY,
    metavar="MB",
    help="Megabytes for rows that are kept and for matrices made of them.",
)
@click.option("--batch-size", type=int, metavar="N", help="Rows per image; for --method power, which requires it.")
@_options.power_method
@click.option(
    "--n-passes",
    type=int,
    metavar="N",
    help="How often the files are read; 1 reads them once, as a stream.  [default: 3; 2 with --method entries]",
)
@click.option("--order", type=int, default=3, help="Order of the moment.")
@click.option(
    "--moment",
    type=click.Choice(MOMENTS),
    default=DEFAULT_MOMENT,
    help="cumulant: independent sources in Gaussian noise, whatever their mean; with --order 4 also more than columns.",
)
@_options.columns
@_options.weight
@_options.seed
@click.option("--checkpoint", type=_options.CHECKPOINT, metavar="FILE", help="Save the state of the run in this file.")
@click.option("--checkpoint-seconds", type=float, default=30.0, help="Seconds between checkpoints.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint, if there is one.")
@_options.scheduler
@_options.outputs
def stream(
    files: tuple[Path, ...],
    seed: int,
    resume: bool,
    scheduler: str | None,
    outputs: Outputs,
    weight: str | None,
    **settings: Any,
) -> None:
    r"""Decompose the moment E[x ⊗ x ⊗ x] of the rows x in FILEs, read block by block and never held as a whole.

    FILE may be .npy, .npz (CSR), .parquet, .arrow, .feather, .svmlight, .csv, .tsv, a directory of such files, or a
    quoted pattern. Ctrl-C ends the run; with --checkpoint it can be continued later, and its result is bit-identical to
    that of an uninterrupted run.

    \b
    Examples:
      odeco stream rows.npy -k 5 --report page.html
      odeco stream rows.npy -k auto
      odeco stream day1.parquet day2.parquet -k 10 --checkpoint run.ckpt
      odeco stream people.csv -k 3 --drop id,name
      odeco stream survey.csv -k 3 --weight households
      odeco stream rows.npy -k 5 --method power --batch-size 10000
      odeco stream rows.npy -k auto --order 4 --moment cumulant
      odeco stream '/shared/day-*.npy' -k 5 --scheduler tcp://host:8786
    """
    checkpoint: Path | None = settings["checkpoint"]
    begun = checkpoint is not None and checkpoint.exists()
    _options.check_usage(
        {
            "--resume needs --checkpoint FILE, the file to go on from.": resume and checkpoint is None,
            f"{checkpoint} must not exist yet. It does: a run that was interrupted. Pass --resume to go on from it, or "
            "remove it to begin again.": begun and not resume,
        }
    )
    if resume and not begun:
        note(f"no checkpoint {checkpoint}: beginning at the first row")
    data: Any = str(files[0]) if len(files) == 1 else [str(path) for path in files]
    check_selection(settings["columns"], settings["drop"])
    selection = {name: settings[name] for name in ("columns", "drop")}
    source: BatchSource = (
        as_source(data, **selection)
        if weight is None
        else WeightedSource.of(data, weight, settings["order"], **selection)
    )
    labels = load_names(outputs.names, source.n_features, getattr(source, "columns", None))
    n_rows = 0
    with (
        _options.limited(outputs.threads),
        _options.connected(scheduler) as client,
        Interrupts() as interrupts,
        progress_bar(only_on_terminal=True) as show_progress,
        columns_called(labels),
    ):
        show_progress("reading")

        def show(progress: Any) -> None:
            nonlocal n_rows
            n_rows = progress.n_rows
            total = None if progress.n_rows_needed is None else n_rows + progress.n_rows_needed
            show_progress(progress.stage, n_rows, total, _rows_of_this_pass(n_rows, source.n_rows))
            interrupts.check()

        try:
            settings["keep_checkpoint"] = checkpoint is not None
            settings |= {"sample_weight": weight, "client": client}
            result = odeco.decompose_stream(data, rng=seed, callback=show, **settings)
        except KeyboardInterrupt:
            raise _interrupted(interrupts, _read_so_far(n_rows, source.n_rows), checkpoint) from None
    title = f"Components of {files[0].name}" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    again = None
    if checkpoint is not None:
        again = f"{checkpoint} holds the run as it ended: run the command again with --resume and another path"
    deliver_result(result.with_names(labels), outputs, title=title, again=again)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def _rows_of_this_pass(n_read: int, n_rows: int | None) -> str:
    """Return the number of rows read in the current pass; if the length is unknown, in all passes."""
    return f"{n_read:,} rows" if not n_rows else f"{(n_read - 1) % n_rows + 1 if n_read else 0:,} of {n_rows:,} rows"


def _read_so_far(n_read: int, n_rows: int | None) -> str:
    """Return the number of complete passes and of rows after them."""
    n_passes, rest = divmod(n_read, n_rows) if n_rows else (0, n_read)
    passes = f"{n_passes} pass{'' if n_passes == 1 else 'es'} and " if n_passes else ""
    return f"{passes}{rest:,} rows"


def _interrupted(interrupts: Interrupts, so_far: str, checkpoint: Path | None) -> Interrupted:
    text = f"Interrupted after {so_far}. "
    if checkpoint is None:
        text += "Nothing was saved; pass --checkpoint FILE to be able to go on."
    elif not checkpoint.exists():  # a second signal came before the first block of rows was done
        text += f"{checkpoint} was not written yet."
    else:
        text += f"{checkpoint} holds where the run stands. To go on:\n\n    {command_line('--resume')}\n"
    return Terminated(text) if interrupts.number == signal.SIGTERM else Interrupted(text)

"""``odeco decompose``: the components of a tensor in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import odeco
from odeco.cli import options as _options
from odeco.cli.inputs import load_names, load_tensor
from odeco.cli.output import deliver_result, show_result
from odeco.display.progress import progress_bar


@click.command("decompose")
@click.argument("file", type=_options.FILE)
@_options.n_components_or_auto
@_options.n_restarts
@_options.n_iterations
@click.option(
    "--tol", type=float, default=1e-10, show_default=True, help="Relative residual to reach; 0: a fixed count."
)
@click.option(
    "--method",
    type=click.Choice(["auto", "cp", "power"]),
    default="auto",
    show_default=True,
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
def command(
    file: Path,
    n_components: int | str,
    n_restarts: int | None,
    n_iterations: int | None,
    tol: float,
    method: str,
    whiten: str | None,
    symmetrize: bool,
    asymmetric: bool,
    key: str | None,
    seed: int,
    as_json: bool,
    out: Path | None,
    report: Path | None,
    names: Path | None,
    top: int,
    threads: int | None,
) -> None:
    r"""Decompose the symmetric tensor in FILE (.npy or .npz, order 3 or more) into weights and unit vectors.

    \b
    Examples:
      odeco decompose tensor.npy -k 5
      odeco decompose tensor.npy -k auto --out result.npz --report page.html
      odeco decompose tensor.npz --key T -k 3 --whiten tensor --json
      odeco decompose unequal.npy --asymmetric -k auto
    """
    if asymmetric and names is not None:
        raise click.UsageError("--names is for the one axis of a symmetric tensor, and does not go with --asymmetric.")
    if asymmetric and (symmetrize or whiten is not None):
        raise click.UsageError("--asymmetric goes with neither --symmetrize nor --whiten.")
    settings: dict[str, Any] = {"n_restarts": n_restarts, "n_iterations": n_iterations, "tol": tol, "rng": seed}
    with _options.limited(threads):
        tensor = load_tensor(file, key)
        labels = load_names(names, tensor.shape[0] if tensor.ndim else 0)
        if symmetrize:
            tensor = odeco.symmetrize(tensor)
        with progress_bar(only_on_terminal=True) as show_progress:
            show_progress("checking the tensor")

            def show(search: Any) -> None:
                found = search.components.n_components
                total = None if isinstance(n_components, str) else n_components
                show_progress(search.status, found, total, f"{found} found")

            recipe: Any = odeco.decompose_asymmetric if asymmetric else odeco.decompose
            settings |= {"method": method} if asymmetric else {"method": method, "whiten": whiten}
            result = recipe(tensor, n_components, callback=show, **settings)
    if labels is not None:
        result = result.with_names(labels)
    deliver_result(
        result,
        out=out,
        report=report,
        title=f"Components of {file.name}",
        show=lambda: show_result(result, as_json=as_json, top=top),
    )

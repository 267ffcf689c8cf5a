"""A synthetic table: its rows, its guarantee, and what to expect of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Self

import numpy as np

from odeco._util.arguments import as_generator, check_count
from odeco._util.files import faults_of, load_arrays, save_arrays
from odeco._util.state import State, array_field, check_names, given_field, part_field, record, text
from odeco._util.types import FloatArray, RngLike
from odeco.decompose.files import versions
from odeco.io.schema import Schema, as_schema, to_document
from odeco.models.synthetic.products import Products
from odeco.privacy.holders.tables import Levels
from odeco.privacy.report import PrivacyReport

#: What a file of synthetic data is called.
KIND = "synthetic data"

_HEADER = record(
    {
        "written_by": record(dict.fromkeys(("odeco", "numpy", "scipy", "python"), text())),
        "privacy": text(),
        "schema": text(),
    }
)


def levels_of(schema: Schema) -> Levels:
    """Return how many levels each column has."""
    return Levels(np.array([each.n_levels for each in schema.values()]))


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticData(State):
    """A synthetic table and all that was learnt for it; `odeco.synthesize` returns it.

    All of it is computed from what was released with noise, and may be published.

    Attributes
    ----------
    products : Products
        The mixture of products that rows are drawn from.
    errors : array, columns x columns
        The total variation by which noise alone moves the table of two columns; on the diagonal,
        the shares of one. The draw of rows comes on top, and what pairs of columns do not say.
    n_clear : int
        The number of pairs of columns that depend on each other clear of noise. If it is 0 and the
        mixture has one class, columns were drawn independently.
    n_records : int
        The number of rows of the private table, which is public.
    n_rows : int
        The number of rows of `table`.
    seed : int
        Seeds the draw of `table`.
    is_frame : int
        1 if tables are those of pandas, 0 if they are dicts of arrays.
    schema : dict
        What each column may hold.
    privacy : PrivacyReport
        The guarantee.
    """

    products: Products = part_field(Products)
    errors: FloatArray = array_field("columns", "columns", low=0, high=1 + 1e-9)
    n_clear: int = array_field(kind="i", low=0)
    n_records: int = array_field(kind="i", low=1)
    n_rows: int = array_field(kind="i", low=1)
    seed: int = array_field(kind="i", low=0)
    is_frame: int = array_field(kind="i", low=0, high=1)
    schema: Schema = given_field()
    privacy: PrivacyReport = given_field()

    @property
    def levels(self) -> Levels:
        """How many levels each column has."""
        return levels_of(self.schema)

    @property
    def is_dependent(self) -> bool:
        """Whether columns depend on each other, and were not drawn independently."""
        return self.products.weights.size > 1

    @cached_property
    def table(self) -> Any:
        """The synthetic table."""
        return self.sample(self.n_rows, random_state=self.seed)

    def sample(self, n: int, random_state: RngLike = None) -> Any:
        """Draw further rows; this costs no privacy.

        Parameters
        ----------
        n : int
            The number of rows.
        random_state : None, int, or Generator, RandomState or SeedSequence of numpy.random
            By default every call draws others.
        """
        n = check_count("n", n)
        rng = as_generator(random_state)
        codes = self.products.draw(self.levels, n, rng)
        columns = {
            name: column.decode(codes[:, place], rng)
            for place, (name, column) in enumerate(self.schema.items())
        }
        if self.is_frame:
            return import_module("pandas").DataFrame(columns)
        return columns

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        n_columns = len(self.schema)
        if n_columns == 1:
            return f"One column, with shares that noise moves by {self.errors[0, 0]:.3f}."
        if not self.is_dependent:
            return (
                f"{n_columns} independent columns: no dependence between them is clear of noise, "
                "so that each was drawn by itself."
            )
        errors = self._errors_of_pairs
        return (
            f"{n_columns} columns; {self.n_clear} of {errors.size} pairs depend on each other clear"
            " of noise by themselves, and noise moves two-way tables by "
            f"{errors.mean():.3f} on average (total variation)."
        )

    @property
    def _errors_of_pairs(self) -> FloatArray:
        """The errors of the tables of two columns, in the order of `Levels.all_pairs`."""
        pairs = self.levels.all_pairs()
        return self.errors[pairs[:, 0], pairs[:, 1]]

    def summary(self) -> str:
        """Return what was found, what to expect, and what the guarantee means."""
        lines = [self.verdict, f"{self.n_rows:,} rows, from {self.n_records:,} private ones."]
        errors = self._errors_of_pairs
        if errors.size:
            first, second = self.levels.all_pairs()[int(np.argmax(errors))]
            names = list(self.schema)
            lines.append(
                f"Noise moves the table of {names[first]} and {names[second]} most, by "
                f"{errors.max():.3f}."
            )
        lines.append(
            "Combinations of three and more columns, rare levels and small groups may be far off."
        )
        return "\n".join([*lines, self.privacy.statement])

    def __repr__(self) -> str:
        return f"<SyntheticData: {self.verdict}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to an ``.npz`` file, atomically and without pickle."""
        header = {
            "written_by": versions(),
            "privacy": self.privacy.to_json(),
            "schema": json.dumps(to_document(self.schema)),
        }
        save_arrays(path, KIND, header, self.to_arrays(""), readable=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. The file may come from anyone: nothing in it is executed."""
        header, arrays = load_arrays(path, KIND)
        with faults_of(path, "Write it again."):
            _HEADER(header, "", {})
            parts = {
                "schema": as_schema(json.loads(header["schema"])),
                "privacy": PrivacyReport.from_json(header["privacy"]),
            }
            made = cls.from_arrays(arrays, "", parts=parts)
            check_names(arrays, {"": made})
        return made

    def check(self) -> None:
        """Raise `ValueError` if a file contradicts itself."""
        levels = self.levels
        if len(self.products.shares) != levels.owners.size or len(self.errors) != len(self.schema):
            raise ValueError("the mixture must have the levels of the schema")
        sums = levels.sum_by_column(self.products.shares)
        if np.abs(sums - 1).max() > 1e-6 or abs(self.products.weights.sum() - 1) > 1e-6:
            raise ValueError("the probabilities of the mixture must sum to one")
        if self.n_clear > len(levels.all_pairs()):
            raise ValueError("no more pairs may be clear than there are")

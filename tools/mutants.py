"""Make small edits that break a guarantee, one at a time, and see whether the privacy tests notice.

``make mutants`` applies every edit of `MUTANTS` to a copy of the project, runs the tests that must notice it, and
prints a table: *killed* if one of them failed, *survived* if none did. The tests are run without any edit first: they
must pass then. It ends with code 1 unless all are killed. ``--only REGEX`` runs those that match.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_COPIED = ("src", "tests", "docs", "pyproject.toml")


@dataclass(frozen=True)
class Mutant:
    """An edit that breaks a guarantee.

    Attributes
    ----------
    breaks : str
        What it breaks, in words for the table.
    file : str
        The file that is edited, below ``src/odeco``.
    old, new : str
        The text that stands there once, and what takes its place.
    tests : str
        The file of tests that must notice, below ``tests/privacy``.
    chosen : str
        Which tests of the file, as for ``pytest -k``.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: str
    chosen: str = ""

    def apply(self, root: Path) -> None:
        """Make the edit in a copy of the project; raise unless its text stands there once."""
        path = root / "src" / "odeco" / self.file
        text = path.read_text(encoding="utf-8")
        places = self.places(text)
        if len(places) != 1:
            raise ValueError(
                f"The text of the mutant {self.breaks!r} must stand in {self.file} once. It "
                f"stands there {len(places)} times. Bring the list in tools/mutants.py up to date."
            )
        first, last = places[0].span()
        path.write_text(text[:first] + self.new + text[last:], encoding="utf-8")

    def places(self, text: str) -> list[re.Match[str]]:
        """Return where the old text stands, however its lines are broken."""
        tokens = re.findall(r"\w+|[^\w\s]", self.old)
        indent = self.old[: len(self.old) - len(self.old.lstrip())]
        pattern = indent + re.escape(tokens[0])
        for before, after in itertools.pairwise(tokens):
            gap = r"\s+" if before.isidentifier() and after.isidentifier() else r"\s*"
            comma = r",?\s*" if after in ")]}" else ""
            pattern += gap + comma + re.escape(after)
        pattern += self.old[len(self.old.rstrip()) :]
        return list(re.finditer(pattern, text))


MUTANTS = [
    Mutant(
        "`input` returns exact weights",
        "private/mechanisms/entries.py",
        "return found_in_entries(components, scale,",
        "components.weights[:] = holder.value(components.vectors)\n        return found_in_entries(components, scale,",
        "test_information_flow.py",
        "depends and input",
    ),
    Mutant(
        "restarts from the sixth on get no noise",
        "privacy/release.py",
        "noisy(exact[..., column], scale, self.noise) for column",
        "noisy(exact[..., column], scale, self.noise) if column < 5 else exact[..., column] for column",
        "test_information_flow.py",
        "depends and wang2016",
    ),
    Mutant(
        "`subspace` takes its basis from exact data",
        "private/mechanisms/entries.py",
        "np.linalg.eigh(moment)",
        "np.linalg.eigh(rows.second_moment())",
        "test_information_flow.py",
        "depends and subspace",
    ),
    Mutant(
        "`core` takes its basis from exact data",
        "private/mechanisms/entries.py",
        "leading_directions(slab, width)",
        "leading_directions(holder.slab(asked), width)",
        "test_information_flow.py",
        "depends and core and rows",
    ),
    Mutant(
        "a result holds exact noise floors",
        "private/recipe.py",
        "found.noise_floors[first]",
        "holder.value(found.components.vectors)[first]",
        "test_audit_of_whole_runs.py",
        "tells_neighbours and joint",
    ),
    Mutant(
        "whether a component is clear is decided by exact weights",
        "private/recipe.py",
        "if not np.any(np.abs(weights) > floors):",
        "if not np.any(np.abs(holder.value(found.components.vectors)[first]) > floors):",
        "test_information_flow.py",
        "depends and input",
    ),
    Mutant(
        "CSR rows are clipped without adding up entries stored twice",
        "privacy/holders/lanes.py",
        "    kept.sum_duplicates()\n",
        "",
        "test_declared.py",
        "stored_in_pieces",
    ),
    Mutant(
        "the margin of clipped rows does not grow with the number of columns",
        "privacy/holders/lanes.py",
        "max(_MARGIN, n_numbers * 2.0**-53)",
        "_MARGIN",
        "test_clipping.py",
        "very_wide",
    ),
    Mutant(
        "a private tensor may hold numbers that are infinite in double precision, and so 0",
        "privacy/holders/entries.py",
        " and array.dtype.itemsize <= np.dtype(np.float64).itemsize",
        "",
        "test_declared.py",
        "tensor_is_refused",
    ),
    Mutant(
        "norms: replacing a unit is charged as blanking it",
        "privacy/holders/norms.py",
        'return neighbour_factor(replace=neighbour_relation == "replace", signed=False)',
        "return 1.0",
        "test_bounds_of_norms.py",
        "moves_the_counts and replace",
    ),
    Mutant(
        "norms: a user with several rows counts once for each",
        "privacy/holders/norms.py",
        "np.floor(weights / _GRAIN) * _GRAIN",
        "np.ones(weights.size)",
        "test_bounds_of_norms.py",
        "moves_the_counts and users",
    ),
    Mutant(
        "norms: a row is counted in its own bin and the next",
        "privacy/holders/norms.py",
        "minlength=N_BINS)\n",
        "minlength=N_BINS)\n    total[1:] += total[:-1]\n",
        "test_bounds_of_norms.py",
        "moves_the_counts",
    ),
    Mutant(
        "norms: the bound of a decomposition is the largest norm",
        "private/recipe.py",
        'settings["norm_bound"] = release_bound(',
        'settings["norm_bound"] = float(abs(data).max()) or release_bound(',
        "test_bounds_of_norms.py",
        "whatever_the_rows_are",
    ),
    Mutant(
        "norms: the counts of a mixture are free",
        "models/engine/private.py",
        "tuple((1 - of_norms) * share for share in shares)",
        "shares",
        "test_bounds_of_norms.py",
        "a_mixture_chooses",
    ),
    Mutant(
        "users: every record of a user counts in full",
        "privacy/holders/protocol.py",
        "return 1 / np.bincount(units)[units], n_units",
        "return np.ones(units.size), n_units",
        "test_users.py",
        "moves_a_sum",
    ),
    Mutant(
        "users: answers of a user count by their square root",
        "privacy/holders/answers.py",
        "weights = self._weights[0][:, None]",
        "weights = np.sqrt(self._weights[0][:, None])",
        "test_users.py",
        "moves_a_sum",
    ),
    Mutant(
        "users: the third moment counts rows by their square root",
        "privacy/holders/rows.py",
        "np.cbrt(counts)",
        "np.sqrt(np.cbrt(counts))",
        "test_users.py",
        "moves_a_sum",
    ),
    Mutant(
        "users: a model protects records and says users",
        "models/engine/private_estimator.py",
        "holder, base = self._hold(X, spec, groups=groups, **side)",
        "holder, base = self._hold(X, spec, groups=None, **side)",
        "test_users.py",
        "says_whom",
    ),
    Mutant(
        "subspace: replacing a row is charged as blanking it",
        "private/subspace.py",
        "sensitivity=holder.second_moment_sensitivity(),",
        "sensitivity=holder.norm_bound**2 / holder.n_units,",
        "test_subspace.py",
        "moves_what_is_released and replace",
    ),
    Mutant(
        "subspace: entries off the diagonal count twice",
        "private/subspace.py",
        "lambda: holder.second_moment()[lower] / units,",
        "lambda: holder.second_moment()[lower] / units**2,",
        "test_subspace.py",
        "moves_what_is_released",
    ),
    Mutant(
        "subspace: eigenvalues are exact",
        "private/subspace.py",
        "np.linalg.eigh(moment)",
        "(np.linalg.eigvalsh(holder.second_moment()), np.linalg.eigh(moment)[1])",
        "test_bounds_of_norms.py",
        "whatever_the_rows_are",
    ),
    Mutant(
        "records: no slack for rounding",
        "privacy/holders/records.py",
        "return 2 * (depth + LANES + 16) * ROUNDOFF * largest",
        "return 0 * depth * largest",
        "test_declared.py",
        "records_declare",
    ),
    Mutant(
        "streams: no slack for rounding",
        "online/private.py",
        "exact + 2 * depth * ROUNDOFF * bound**p * gain",
        "exact + 0 * depth * gain",
        "test_declared.py",
        "stream_declares",
    ),
    Mutant(
        "topics: pairs of words without noise",
        "models/lda/private_topics.py",
        "    pairs = unpack_pairs(packed, frequent.size)\n",
        "    pairs = unpack_pairs(held.pairs(frequent).answer(), frequent.size)\n",
        "test_private_topics_noise.py",
        "same_releases",
    ),
    Mutant(
        "topics: an EM step with a thousandth of the noise",
        "models/lda/private_topics.py",
        "        steps.append(step)\n",
        "        exact = query.answer()\n"
        "        steps.append(replace(step, sums=exact + (step.sums - exact) / 1000))\n",
        "test_private_topics_noise.py",
        "same_releases",
    ),
    Mutant(
        "topics: what a document says of words and topics is not scaled to norm 1",
        "privacy/holders/document_kernels.py",
        "row_of_total[topic] += weight * own[row_number, topic]",
        "row_of_total[topic] += own[row_number, topic]",
        "test_private_topics_sensitivity.py",
        "neighbouring and (words or responsibilities)",
    ),
    Mutant(
        "topics: the pairs of a user are not scaled to norm 1",
        "privacy/holders/document_kernels.py",
        "total[low, high] += weight * own[i, j]",
        "total[low, high] += own[i, j]",
        "test_private_topics_sensitivity.py",
        "neighbouring and pairs",
    ),
    Mutant(
        "topics: to replace a document is taken for blanking it",
        "privacy/sums.py",
        'replace = self.neighbour_relation == "replace"',
        "replace = False",
        "test_private_topics_sensitivity.py",
        "neighbouring",
    ),
    Mutant(
        "topics: no slack for rounding",
        "privacy/sums.py",
        "(factor + 2 * ROUNDOFF * (8 * query.size + 8 + self.n_records * (self._n_terms + 8)))",
        "(factor + 0 * ROUNDOFF)",
        "test_private_topics_sensitivity.py",
        "rounding_errors",
    ),
    Mutant(
        "topics: what a document adds is dealt by all documents of its lane",
        "privacy/holders/document_kernels.py",
        "    shares[:] = np.float32(1) / np.float32(k)\n    for _ in range(n_rounds)",
        "    for _ in range(n_rounds)",
        "test_private_topics_sensitivity.py",
        "depends_on_no_other",
    ),
    Mutant(
        "mixtures: rows that are dealt to components are not clipped",
        "privacy/holders/rows.py",
        "near = clipped_rows((rows - centre) / radius, 1.0)",
        "near = (rows - centre) / radius",
        "test_private_mixtures.py",
        "moves_a_sum and shares",
    ),
    Mutant(
        "mixtures: whitened rows are not clipped",
        "privacy/holders/rows.py",
        "white = clipped_rows((rows - mean) @ whitener, radius)",
        "white = (rows - mean) @ whitener",
        "test_private_mixtures.py",
        "moves_a_sum and thirds",
    ),
    Mutant(
        "mixtures: opposite rows get the price of others",
        "privacy/holders/rows.py",
        "signed=True,",
        "signed=False,",
        "test_private_mixtures.py",
        "worst_neighbours",
    ),
    Mutant(
        "mixtures: a blank row is counted",
        "privacy/holders/rows.py",
        "shares = as_probabilities(responsibilities(rows)) * counts[:, None]",
        "shares = as_probabilities(responsibilities(rows))",
        "test_private_mixtures.py",
        "blank",
    ),
    Mutant(
        "mixtures: what covariances add is not part of the bound",
        "privacy/holders/rows.py",
        "bound=math.sqrt(3 if width else 2)",
        "bound=math.sqrt(2)",
        "test_private_mixtures.py",
        "moves_a_sum or at_the_radius",
    ),
    Mutant(
        "mixtures: entries of covariances count as often as they stand in the matrix, not the root of that",
        "privacy/holders/rows.py",
        "return np.asarray(matrix[first, second] * np.where(first == second, 1.0, math.sqrt(2)))",
        "return np.asarray(matrix[first, second] * np.where(first == second, 1.0, 2.0))",
        "test_private_mixtures.py",
        "packed_arrays",
    ),
    Mutant(
        "mixtures: squares of rows that are not clipped are added",
        "privacy/holders/rows.py",
        "sums.append(shares.T @ near**2)",
        "sums.append(shares.T @ ((rows - centre) / radius) ** 2)",
        "test_private_mixtures.py",
        "moves_a_sum",
    ),
    Mutant(
        "mixtures: the covariances of components are exact",
        "models/gmm/private.py",
        "seconds = radius**2 * table[:, d + 1 :] / counts[:, None]",
        "seconds = radius**2 * query.answer().reshape(k, -1)[:, d + 1 :] / counts[:, None]",
        "test_private_mixtures.py",
        "same_releases",
    ),
    Mutant(
        "columns: a row is taken to have one number",
        "privacy/holders/rows.py",
        "bound=math.sqrt(self.n_features),",
        "bound=1.0,",
        "test_private_mixtures.py",
        "moves_a_sum",
    ),
    Mutant(
        "columns: a user with several rows counts once for each",
        "privacy/holders/rows.py",
        "return count_columns(self._rows[part], self._weights[part])",
        "return count_columns(self._rows[part], np.ones(len(self._rows[part])))",
        "test_users.py",
        "moves_a_sum",
    ),
    Mutant(
        "columns: a blank row is counted",
        "privacy/holders/norms.py",
        "own = np.where(usable, weights, 0.0)",
        "own = weights",
        "test_private_mixtures.py",
        "blank",
    ),
    Mutant(
        "columns: scales are exact",
        "models/engine/private.py",
        "centre, scale = suggested_units(counts.reshape(d, N_COLUMN_BINS), deviation)",
        "centre, scale = suggested_units(held.column_counts().answer().reshape(d, N_COLUMN_BINS), deviation)",
        "test_private_mixtures.py",
        "same_releases",
    ),
    Mutant(
        "mixtures: private rows are standardised by each other",
        "models/engine/private_estimator.py",
        "return BoundedRows(rows, float(norm_bound or 0.0), groups), spec.Context()",
        "return BoundedRows(rows / rows.std(axis=0), float(norm_bound or 0.0), groups), spec.Context()",
        "test_private_mixtures.py",
        "scales_no_row",
    ),
    Mutant(
        "mixtures: the second moment without noise",
        "models/gmm/private.py",
        "moment, noise = moment_of_seconds(packed, n, d)",
        "moment, noise = moment_of_seconds(held.seconds().answer(), n, d)",
        "test_private_mixtures.py",
        "same_releases",
    ),
    Mutant(
        "sources: rows whitened for the second moment are not clipped",
        "privacy/holders/rows.py",
        "near = rows if whitener is None else clipped_rows((rows - mean) @ whitener, 1.0)",
        "near = rows if whitener is None else (rows - mean) @ whitener",
        "test_private_sources.py",
        "moves_a_moment",
    ),
    Mutant(
        "sources: rows whitened for the fourth moment are not clipped",
        "privacy/holders/rows.py",
        "near = clipped_rows((rows - mean) @ whitener, radius)",
        "near = (rows - mean) @ whitener",
        "test_private_sources.py",
        "moves_a_moment",
    ),
    Mutant(
        "sources: the bound of the fourth moment forgets the constant",
        "privacy/holders/rows.py",
        "bound=(radius**2 + constant**2) ** 2",
        "bound=radius**4",
        "test_private_sources.py",
        "moves_a_moment",
    ),
    Mutant(
        "sources: entries of the fourth moment count as often as they stand in it, not the root of that",
        "privacy/holders/rows.py",
        "factors = fours.scales / (",
        "factors = fours.scales**2 / (",
        "test_private_sources.py",
        "moves_a_moment",
    ),
    Mutant(
        "sources: a blank row is counted in the fourth moment",
        "privacy/holders/rows.py",
        "(products * counts) @ products.T",
        "products @ products.T",
        "test_private_sources.py",
        "blank",
    ),
    Mutant(
        "sources: the second whitening is exact",
        "models/ica/private.py",
        "moment = moment_of_seconds(packed, n, k)",
        "moment = moment_of_seconds(held.seconds(frame.mean, frame.forward / radius).answer(), n, k)",
        "test_private_sources.py",
        "same_releases",
    ),
    Mutant(
        "users: a user with several rows counts once for each in the fourth moment",
        "privacy/holders/rows.py",
        "(products * counts) @ products.T",
        "(products * (counts > 0)) @ products.T",
        "test_users.py",
        "moves_a_sum",
    ),
    Mutant(
        "communities: noisy pairs are used, and not their bits",
        "models/mmsb/private.py",
        "links = _unbiased(noisy > 0.5, flipped, n)",
        "links = _unbiased(noisy, flipped, n)",
        "test_private_communities.py",
        "kept_of_a_noisy_pair",
    ),
    Mutant(
        "communities: pairs are flipped less often than epsilon says",
        "privacy/guarantee.py",
        "float(-2 * ndtri(expit(-self.epsilon)))",
        "float(-2.1 * ndtri(expit(-self.epsilon)))",
        "test_private_communities.py",
        "flipped_as_often",
    ),
    Mutant(
        "communities: a pair counts as often as it is stored",
        "privacy/holders/graph.py",
        "bits[self._places] = 1.0",
        "np.add.at(bits, self._places, 1.0)",
        "test_private_communities.py",
        "moves_the_bits",
    ),
    Mutant(
        "communities: pairs are exact",
        "models/mmsb/private.py",
        "noisy, deviation = releaser.release(held.pairs(), share=1.0)",
        "noisy, deviation = held.pairs().answer(), releaser.release(held.pairs(), share=1.0)[1]",
        "test_private_communities.py",
        "same_releases",
    ),
    Mutant(
        "noise is 5 % short behind the ledger's back",
        "privacy/release.py",
        "released = noisy(self._quietly(answer), scale, self.noise)",
        "released = noisy(self._quietly(answer), 0.95 * scale, self.noise)",
        "test_audit.py",
        "correct_code_is_certified and literal",
    ),
    Mutant(
        "2 √5 in place of 6 for an entry as the paper defines it",
        "privacy/sensitivity.py",
        "return float(math.factorial(order) * _row_norms(block, 2 * order - 2)",
        "return float(2 * math.sqrt(5) * _row_norms(block, 2 * order - 2)",
        "test_sensitivity.py",
        "literal_neighbours",
    ),
    Mutant(
        "the count of releases leaves out the restarts",
        "private/mechanisms/iterations.py",
        "search.n_components * search.n_restarts * (search.n_iterations + 1)",
        "search.n_components * (search.n_iterations + 1)",
        "test_private.py",
        "finds_strong_components and wang2016",
    ),
    Mutant(
        "the price of blanking a record out is taken for replacing it",
        "privacy/sensitivity.py",
        "neighbour_factor(replace=self.replace, signed=signed)",
        "1.0",
        "test_sensitivity.py",
        "no_record_moves",
    ),
    Mutant(
        "the entries of order 4 of a user count once for each row",
        "privacy/holders/records.py",
        "total += entries.powers(np.ascontiguousarray(_dense(rows[part]).T)) @ weights[part]",
        "total += entries.powers(np.ascontiguousarray(_dense(rows[part]).T)).sum(axis=1)",
        "test_declared.py",
        "entries_of_order_four",
    ),
    Mutant(
        "the entries of order 4 are charged half of their price",
        "privacy/sensitivity.py",
        "return self._replacing(order) * self.norm_bound**order / self.n_records",
        "return self._replacing(order) * self.norm_bound**order / self.n_records / (1 + (order == 4))",
        "test_declared.py",
        "entries_of_order_four",
    ),
    Mutant(
        "signed records get the price of non-negative ones",
        "privacy/sensitivity.py",
        "signed=order % 2 == 1 and not self.nonnegative",
        "signed=False",
        "test_private.py",
        "no_record_neighbour",
    ),
    Mutant(
        "negative numbers are not cut in non-negative records",
        "privacy/holders/lanes.py",
        "np.maximum(numbers, 0.0, out=numbers)",
        "np.maximum(numbers, -np.inf, out=numbers)",
        "test_declared.py",
        "negative_numbers_are_cut",
    ),
    Mutant(
        "an index outside of the columns is kept",
        "privacy/sources.py",
        "    if outside.any():",
        "    if False:",
        "test_information_flow.py",
        "depends and npz",
    ),
    Mutant(
        "a null in a table is an error that names its row",
        "privacy/sources.py",
        "nulls_are_nan = True",
        "nulls_are_nan = False",
        "test_information_flow.py",
        "depends and parquet",
    ),
    Mutant(
        "a private table that is not well-formed is not refused",
        "privacy/sources.py",
        "        if not all(widths):",
        "        if not widths:",
        "test_private_files.py",
        "well_formed",
    ),
    Mutant(
        "a record with line breaks is read as several",
        "io/tables.py",
        "        if '\"' in line:",
        "        if not line:",
        "test_private_files.py",
        "every_content",
    ),
    Mutant(
        "a record of spaces in a table of one column is no record",
        "io/tables.py",
        "own = (record for record in records if len(names) == 1 or not record.is_blank)",
        "own = (record for record in records if not record.is_blank)",
        "test_private_files.py",
        "only_cell",
    ),
    Mutant(
        "a row of spaces in a table of one column is no record",
        "privacy/sources.py",
        "if self._n_cells == 1 or not record.is_blank)",
        "if not record.is_blank)",
        "test_private_files.py",
        "only_cell",
    ),
    Mutant(
        "the batches of a stream are not counted against delta",
        "online/private.py",
        "check_delta_for(self.guarantee.delta, last,",
        "check_delta_for(self.guarantee.delta, n_rows,",
        "test_declared.py",
        "too_many_for_delta",
    ),
    Mutant(
        "vocabulary: the threshold hides one word of a document, not all",
        "privacy/holders/documents.py",
        "return float(needed.max())",
        "return float(needed[0])",
        "test_private_vocabulary.py",
        "pass_with_probability",
    ),
    Mutant(
        "vocabulary: which words a long document votes for depends on other documents",
        "privacy/holders/documents.py",
        "np.lexsort((_mixed(own ^ keys[unit]), unit))",
        "np.lexsort((held.indices[entries], unit))",
        "test_private_vocabulary.py",
        "that_document_alone",
    ),
    Mutant(
        "vocabulary: the delta of the threshold is not taken off that of the noise",
        "privacy/ledger.py",
        "left = check_delta(delta) - self.delta",
        "left = check_delta(delta)",
        "test_ledger.py",
        "deltas_of_thresholds",
    ),
    Mutant(
        "latent classes: pairs of answers without noise",
        "models/lca/private.py",
        "tables = PairTables.of(released, deviation, questions, held.n_records)",
        "tables = PairTables.of(held.pairs().answer(), deviation, questions, held.n_records)",
        "test_private_classes.py",
        "same_releases",
    ),
    Mutant(
        "latent classes: pairs that are released again are exact",
        "models/lca/private.py",
        "+ (1 - shares.pairs) * rest",
        "+ (1 - shares.pairs) * held.pairs().answer()",
        "test_private_classes.py",
        "same_releases",
    ),
    Mutant(
        "latent classes: pairs that are released again cost nothing",
        "models/lca/private.py",
        "releaser.release(held.pairs(), share=1 - shares.pairs)",
        "releaser.release(held.pairs(), share=1e-9)",
        "test_private_classes.py",
        "charges_are_the_budget",
    ),
    Mutant(
        "latent classes: a step is fitted without its noise",
        "models/lca/private.py",
        "ReleasedStep(classes, released, deviation)",
        "ReleasedStep(classes, held.step(classes.responsibilities, k).answer(), deviation)",
        "test_private_classes.py",
        "same_releases",
    ),
    Mutant(
        "latent classes: the vectors of a view are not shortened",
        "privacy/holders/answers.py",
        "(shortened(given @ each, most) for each, most in",
        "(given @ each for each, most in",
        "test_private_classes.py",
        "no_neighbour and core",
    ),
    Mutant(
        "latent classes: a respondent is taken to answer one question",
        "privacy/holders/answers.py",
        "bound = math.sqrt(self.questions.sizes.size)",
        "bound = 1.0",
        "test_private_classes.py",
        "no_neighbour and step",
    ),
    Mutant(
        "latent classes: an unknown answer is an error that names it",
        "models/lca/estimator.py",
        "return HeldAnswers(questions.indicators(codes), questions, groups), context",
        "check_known(codes, columns_of(X), self._names())\n"
        "        return HeldAnswers(questions.indicators(codes), questions, groups), context",
        "test_information_flow.py",
        "depends and latent",
    ),
    Mutant(
        "latent classes: a missing answer rounds the large numbers that others answered",
        "io/categories.py",
        'if kind == "f" else column.to_numpy(dtype=object)',
        'if kind == "f" or (kind in "iu" and column.hasnans) else column.to_numpy(dtype=object)',
        "test_private_classes.py",
        "missing_answer",
    ),
    Mutant(
        "latent classes: the third moment, whose terms have signs, gets the price of others",
        "privacy/holders/answers.py",
        "bound=math.prod(lengths), signed=True",
        "bound=math.prod(lengths), signed=False",
        "test_private_classes.py",
        "charged_for_the_core",
    ),
    Mutant(
        "latent classes: the bound of the third moment leaves out a view",
        "privacy/holders/answers.py",
        "bound=math.prod(lengths), signed=True",
        "bound=math.prod(lengths[:2]), signed=True",
        "test_private_classes.py",
        "charged_for_the_core",
    ),
    Mutant(
        "latent classes: responsibilities are not made probabilities",
        "privacy/holders/answers.py",
        "as_probabilities(responsibilities(given))",
        "responsibilities(given)",
        "test_private_classes.py",
        "no_neighbour and step",
    ),
    Mutant(
        "synthetic tables: a row is taken to add one 1 to all tables together",
        "privacy/holders/tables.py",
        "bound = math.sqrt(len(pairs))",
        "bound = 1.0",
        "test_private_synthetic.py",
        "no_neighbour",
    ),
    Mutant(
        "synthetic tables: the second release is charged as if it had the counts alone",
        "privacy/holders/tables.py",
        "bound = math.sqrt(len(pairs))",
        "bound = math.sqrt(min(len(pairs), self.levels.n_columns))",
        "test_private_synthetic.py",
        "no_neighbour",
    ),
    Mutant(
        "synthetic tables: replaced rows get the price of blanked ones",
        "models/synthetic/synthesize.py",
        "neighbour_relation=neighbour_relation, neighbours=neighbours,",
        'neighbour_relation="add_remove", neighbours=neighbours,',
        "test_private_synthetic.py",
        "charges_are_the_budget",
    ),
    Mutant(
        "synthetic tables: a code beyond the levels of a column marks a level of the next",
        "privacy/holders/tables.py",
        "known = (codes >= 0) & (codes < levels.sizes)",
        "known = codes >= 0",
        "test_private_synthetic.py",
        "counts_are_exact or no_neighbour",
    ),
    Mutant(
        "synthetic tables: which tables are released again follows from exact ones",
        "models/synthetic/synthesize.py",
        "counts, deviation = sums.release(held.tables(pairs), share=share)",
        "counts, deviation = sums.release(held.tables(pairs), share=share)\n"
        "    counts = held.tables(pairs).answer()",
        "test_private_synthetic.py",
        "same_releases",
    ),
    Mutant(
        "synthetic tables: the second release costs next to nothing, and says as much",
        "models/synthetic/synthesize.py",
        "second = release(np.concatenate([dependent, alone[others]]), 1 - FIRST_SHARE)",
        "second = release(np.concatenate([dependent, alone[others]]), 1e-9)",
        "test_private_synthetic.py",
        "charges_are_the_budget",
    ),
    Mutant(
        "synthetic tables: a cell that cannot be read is an error that depends on it",
        "io/schema.py",
        "        return float(cell)\n    except Exception:  # noqa: BLE001 - an error would depend on the cell\n        return math.nan",
        "        return float(cell)\n    except KeyError:\n        return math.nan",
        "test_information_flow.py",
        "depends and synthesize",
    ),
    Mutant(
        "synthetic tables: a missing cell changes what the whole numbers of others mean",
        "io/schema.py",
        "return str(int(number)) if number.is_integer() else str(number)",
        "return str(cell)",
        "test_private_synthetic.py",
        "missing_cell",
    ),
    Mutant(
        "synthetic tables: the values of a column that occur are its schema",
        "io/schema.py",
        "return np.array([known.get(read(cell), -1) for cell in cells], dtype=np.int64)",
        "return np.array([known[read(cell)] for cell in cells], dtype=np.int64)",
        "test_information_flow.py",
        "depends and synthetic",
    ),
    Mutant(
        "mixtures: responsibilities are not made probabilities",
        "privacy/holders/rows.py",
        "as_probabilities(responsibilities(rows))",
        "responsibilities(rows)",
        "test_private_mixtures.py",
        "no_probabilities",
    ),
    Mutant(
        "streams: distinct entries count as often as they stand in the tensor, not the root of that",
        "online/private.py",
        "multiplicities(query.dimension) ** 0.5",
        "multiplicities(query.dimension)",
        "test_online.py",
        "moves_an_answer and entries",
    ),
    Mutant(
        "a shared ledger is charged without its lock",
        "privacy/ledger_file.py",
        "                lock(file)\n",
        "",
        "test_ledger_file.py",
        "lock or waits",
    ),
    Mutant(
        "vocabulary: the type of the released words tells the length of the longest private one",
        "privacy/release.py",
        "names = np.array([str(key) for key in keys[passed]], dtype=np.str_)",
        "names = keys[passed]",
        "test_information_flow.py",
        "depends and vocabulary",
    ),
    Mutant(
        "vocabulary: words are released in the order of their columns",
        "privacy/release.py",
        'order = np.argsort(names, kind="stable")',
        "order = np.arange(names.size)",
        "test_information_flow.py",
        "depends and vocabulary",
    ),
    Mutant(
        "vocabulary: a document that is no text is an error",
        "models/lda/private_vocabulary.py",
        'texts = (each if isinstance(each, str) else "" for each in documents)',
        "texts = documents",
        "test_information_flow.py",
        "depends and vocabulary",
    ),
    Mutant(
        "sequences: one without symbols is an error",
        "models/hmm/estimator.py",
        "low=0)",
        "low=1)",
        "test_information_flow.py",
        "depends and sequences",
    ),
    Mutant(
        "a ledger takes a part of delta below 0, which raises its limit",
        "privacy/ledger_file.py",
        "if delta_limit != 0:",
        "if delta_limit > 0:",
        "test_ledger_file.py",
        "part_of_delta",
    ),
    Mutant(
        "workers of a cluster do not clip rows",
        "online/dask/requests.py",
        "total.with_rows(query, clipped_rows(rows, task.norm_bound or 0.0))",
        "total.with_rows(query, rows)",
        "test_private_cluster.py",
        "exact",
    ),
    Mutant(
        "rows that are read for every query are not clipped",
        "privacy/holders/lanes.py",
        "within(as_rows(chunk), self.norm_bound, self.nonnegative)",
        "as_rows(chunk)",
        "test_private_cluster.py",
        "every_query and float64",
    ),
    Mutant(
        "a lane on a worker takes the weights of the first rows",
        "privacy/holders/lanes.py",
        "self.weights[first:last]",
        "self.weights[: rows.shape[0]]",
        "test_private_cluster.py",
        "every_query and users",
    ),
    Mutant(
        "a task of a private run raises on the worker, whose log quotes it",
        "online/dask/pieces.py",
        "return PrivateFault(faults[0] if faults else PRIVATE_FAULT)",
        "raise",
        "test_private_cluster.py",
        "do_not_quote",
    ),
    Mutant(
        "an error of a task that computes private blocks is quoted",
        "online/dask/tasks.py",
        "raise PrivateError(PRIVATE_FAULT) from None",
        "raise",
        "test_private_cluster.py",
        "do_not_quote",
    ),
    Mutant(
        "a private stream on a cluster reads files whose errors name rows",
        "online/dask/requests.py",
        "if private and not rows.silent:",
        "if False:",
        "test_private_cluster.py",
        "name_rows_in_errors",
    ),
    Mutant(
        "the number of private columns is the length of the first record's list",
        "privacy/sources.py",
        "    def _find_lengths(self",
        "    def _never_called(self",
        "test_private_files.py",
        "lists_of_any_length",
    ),
    Mutant(
        "the documents of a user on a cluster count one by one",
        "privacy/holders/documents.py",
        "rows.add_lanes(replace(lane, owners=owners[chosen]),",
        "rows.add_lanes(lane,",
        "test_private_cluster.py",
        "no_user_moves",
    ),
    Mutant(
        "the words of private texts on a cluster are not chosen by noisy votes",
        "cli/documents.py",
        "chosen_later = private and words is None",
        "chosen_later = False",
        "test_private_cluster.py",
        "topics_of_texts",
    ),
    Mutant(
        "a task that reads private texts raises on the worker, whose log quotes it",
        "models/lda/cluster.py",
        "return PrivateFault(str(error))",
        "raise",
        "test_private_cluster.py",
        "names_the_file_only",
    ),
    Mutant(
        "sequences: the triples of a sequence are not divided by their norm",
        "privacy/holders/sequences.py",
        "self._weights[0][owners] / np.sqrt(squares[owners])",
        "self._weights[0][owners] + 0 * squares[owners]",
        "test_private_sequences.py",
        "moves_the_table",
    ),
    Mutant(
        "sequences: one with something that is no symbol is not blank",
        "privacy/holders/sequences.py",
        "(sequence[:-2] == sequence[2:]) & ~blank[sequence[2:]]",
        "sequence[:-2] == sequence[2:]",
        "test_private_sequences.py",
        "no_symbol_is_blank",
    ),
    Mutant(
        "sequences: a model is learnt from the exact table",
        "models/hmm/private.py",
        "project_table(released.reshape(v, v, v)",
        "project_table(held.triples().reshape(v, v, v)",
        "test_private_sequences.py",
        "noise_alone_decides",
    ),
    Mutant(
        "sequences: half of the norm of what a sequence adds is declared",
        "privacy/holders/sequences.py",
        "bound=1.0",
        "bound=0.5",
        "test_private_sequences.py",
        "charged",
    ),
    Mutant(
        "users whose labels are records with NaN are taken, so that every row of one is a unit",
        "privacy/holders/protocol.py",
        'labels.dtype.kind != "V" and (distinct or not labels.dtype.hasobject)',
        "distinct or not labels.dtype.hasobject",
        "test_declared.py",
        "labels_of_users",
    ),
    Mutant(
        "an event that is repeated less than no times pays for others",
        "privacy/ledger.py",
        'check_count("count", event.count, 0)',
        "float(event.count)",
        "test_ledger.py",
        "events_of_other",
    ),
    Mutant(
        "users whose labels cannot be sorted are taken, so that one of them may be several units",
        "privacy/holders/protocol.py",
        "    if not sortable:\n",
        "    if labels.ndim != 1:\n",
        "test_declared.py",
        "labels_of_users",
    ),
    Mutant(
        "users: in a decomposition, replacing all rows of one is charged as blanking them",
        "privacy/holders/records.py",
        'replaced = neighbour_relation == "replace"\n        self.sensitivities',
        'replaced = neighbour_relation == "replace" and groups is None\n        self.sensitivities',
        "test_users.py",
        "charged_as_records",
    ),
    Mutant(
        "users: in a model, replacing all rows of one is charged as blanking them",
        "models/engine/private_estimator.py",
        "neighbour_relation=relation,",
        'neighbour_relation=relation if groups is None else "add_remove",',
        "test_users.py",
        "charged_as_records",
    ),
    Mutant(
        "users: in the choice of words, replacing all documents of one is charged as blanking them",
        "privacy/holders/documents.py",
        'replaced = neighbour_relation == "replace"',
        'replaced = neighbour_relation == "replace" and groups is None',
        "test_users.py",
        "charged_as_records",
    ),
    Mutant(
        "users: the rounding errors of a model are those of as many records as users",
        "models/engine/private_estimator.py",
        "n_terms=holder.n_terms,",
        "n_terms=holder.n_records,",
        "test_users.py",
        "rounding_errors",
    ),
    Mutant(
        "vocabulary: the threshold is made for ten times the delta that is charged",
        "models/lda/private_vocabulary.py",
        "threshold = held.threshold(scale, leak)",
        "threshold = held.threshold(scale, 10 * leak)",
        "test_private_vocabulary.py",
        "that_is_charged",
    ),
    Mutant(
        "vocabulary: a word that is stored twice has two votes",
        "privacy/holders/documents.py",
        "    counts.sum_duplicates()\n    counts.data = ((counts",
        "    counts.data = ((counts",
        "test_private_vocabulary.py",
        "stored_twice",
    ),
    Mutant(
        "vocabulary: one that known noise chose is called private",
        "models/lda/private_vocabulary.py",
        "    report = PrivacyReport.of(\n        releaser,",
        "    report = PrivacyReport.of(\n        Releaser(releaser.ledger),",
        "test_private_vocabulary.py",
        "known_noise",
    ),
    Mutant(
        "the command names the private column that rises with every row",
        "cli/inputs.py",
        'remark = "" if private else _columns_used(names, rows)',
        "remark = _columns_used(names, rows)",
        "test_private_files.py",
        "no_private_column",
    ),
    Mutant(
        "a cell above 128 KB makes a private table one that is not well-formed",
        "io/tables.py",
        "_LARGEST_CELL = 2**30",
        "_LARGEST_CELL = 2**17",
        "test_private_files.py",
        "long_as_a_book",
    ),
    Mutant(
        "a line of nested JSON is an error of a private run",
        "io/documents.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "test_private_files.py",
        "nested_json",
    ),
    Mutant(
        "the first record of a private table is taken for names whatever it holds",
        "privacy/sources.py",
        "                check_names(self.columns, path.name)\n",
        "",
        "test_private_files.py",
        "looks_like_data",
    ),
    Mutant(
        "the first record of a private file is names for a model that was told otherwise",
        "cli/inputs.py",
        'n_features=given["dimension"], header=given["header"])',
        'n_features=given["dimension"], header=True)',
        "test_private_files.py",
        "is_a_record",
    ),
    Mutant(
        "an error of a private table quotes its first record",
        "io/tables.py",
        'held = "the names in its first record" if self.private else ", ".join(self.columns)',
        'held = ", ".join(self.columns)',
        "test_private_files.py",
        "quotes_a_cell",
    ),
    Mutant(
        "a ledger pays for runs that protect others than it says",
        "privacy/ledger_file.py",
        "if (_as_unit(unit), neighbours) != (self.unit, self.neighbours):",
        "if _as_unit(unit) != self.unit:",
        "test_ledger_file.py",
        "no_others",
    ),
    Mutant(
        "a decomposition does not state whom it protects to a ledger within another",
        "privacy/ledger.py",
        "        if self._within is not None:\n            self._within.check_run(unit=unit, neighbours=neighbours)\n",
        "        return\n",
        "test_ledger_file.py",
        "no_others",
    ),
    Mutant(
        "the hashes of a ledger are not checked",
        "privacy/ledger_file.py",
        "if line != _as_line(document, before):",
        "if False:",
        "test_ledger_file.py",
        "is_noticed",
    ),
    Mutant(
        "the hash of a line does not depend on the line before it",
        "privacy/ledger_file.py",
        "hashlib.sha256(before + content)",
        "hashlib.sha256(content)",
        "test_ledger_file.py",
        "is_noticed",
    ),
    Mutant(
        "a charge whose line has lost its end is forgotten",
        "privacy/ledger_file.py",
        'return content + b"\\n"',
        "return content[:length]",
        "test_ledger_file.py",
        "half_a_line",
    ),
    Mutant(
        "threads warn about the numbers of a record",
        "privacy/sums.py",
        'quiet_work = np.errstate(all="ignore")(work)',
        "quiet_work = work",
        "test_declared.py",
        "no_warning_about_one",
    ),
]


def verdicts(copy: Path, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Yield every mutant with what became of it."""
    for mutant in mutants:
        shutil.copytree(ROOT / "src", copy / "src", dirs_exist_ok=True)
        mutant.apply(copy)
        code = _run_tests(copy, mutant)
        yield (
            mutant,
            {0: "survived", 1: "killed"}.get(
                code, f"its tests cannot be run (pytest ended with {code})"
            ),
        )


def _run_tests(copy: Path, mutant: Mutant) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:doctest",
    ]
    # The options of the project ask for doctests, which these files do not have.
    command += [
        "-o",
        "addopts=--strict-markers",
        f"tests/privacy/{mutant.tests}",
        "-k",
        mutant.chosen,
    ]
    paths = {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "2",
    }
    done = subprocess.run(command, cwd=copy, env=paths, capture_output=True, check=False)  # noqa: S603 - our own tests
    return done.returncode


def main() -> int:
    """Print the table, and return 0 if every mutant was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        default="",
        metavar="REGEX",
        help="only the mutants whose description or file match",
    )
    only = re.compile(parser.parse_args().only)
    mutants = [
        mutant for mutant in MUTANTS if only.search(mutant.breaks) or only.search(mutant.file)
    ]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _COPIED:
            source = ROOT / name
            shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(
                source, copy / name
            )
        asked = {(mutant.tests, mutant.chosen): mutant for mutant in mutants}
        failing = [mutant.tests for mutant in asked.values() if _run_tests(copy, mutant) != 0]
        if failing:
            sys.stderr.write(
                f"Without any edit these tests must pass: {', '.join(failing)}. Make them pass first.\n"
            )
            return 1
        sys.stdout.write(
            "| what the edit breaks | the tests that must notice | verdict |\n|---|---|---|\n"
        )
        n_killed = 0
        for mutant, verdict in verdicts(copy, mutants):
            n_killed += verdict == "killed"
            sys.stdout.write(f"| {mutant.breaks} | `{mutant.tests}` | {verdict} |\n")
            sys.stdout.flush()
        sys.stdout.write(f"\n{n_killed} of {len(mutants)} mutants killed.\n")
    return 0 if mutants and n_killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Sections for any kind of result: what privacy is guaranteed, and how to make the result again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape

from odeco.privacy import PrivacyReport
from odeco.report._page import Section, table
from odeco.result import AsymmetricDecomposition
from odeco.saving import AnyResult
from odeco.saving import versions as current_versions

_PROMISE = (
    "This result is ({:g}, {:g})-differentially private. Whoever sees it, and knows everything else about the data, "
    "can hardly tell whether one {} was as it is or otherwise. Hidden is this change: {}."
)
_NO_PROMISE = (
    "This result is NOT private. Its noise did not come from the operating system, so whoever knows the noise can "
    "subtract it."
)
#: How much longer than the bound rows might be.
CLIPPED = (1.1, 1.5, 2.0)
#: At most so many kinds of release are listed. The others are counted.
MOST_RELEASES = 40


def privacy_section(privacy: PrivacyReport, clipping: str = "") -> Section:
    """Return the section with the guarantee in words and numbers, and every release that it rests on.

    `clipping` is HTML about what a bound on the data did to the result.
    """
    text = _PROMISE if privacy.private else _NO_PROMISE
    text = text.format(privacy.epsilon, privacy.delta, privacy.unit, privacy.neighbours)
    kind = "" if privacy.private else " bad"
    numbers = table(
        ["", ""],
        [
            ["mechanism", privacy.mechanism],
            ["ε asked for", f"{privacy.epsilon:g}"],
            ["ε spent, for the same δ", f"{privacy.epsilon_spent:.6g}"],
            ["δ", f"{privacy.delta:g}"],
            ["μ of all releases together", f"{privacy.mu:.6g}"],
        ],
        text_columns=[0, 1],
        narrow=True,
    )
    body = f'<p class="statement{kind}">{escape(text)}</p>\n{clipping}{numbers}{_releases(privacy)}'
    lead = "Several results from the same data add up; this statement is about this one alone."
    return Section("Privacy", body, lead)


def _releases(privacy: PrivacyReport) -> str:
    alike: Counter[tuple[str, float, float]] = Counter()
    for charge in privacy.charges:
        alike[charge.mechanism, charge.sensitivity, charge.scale] += charge.count
    rows = [
        [mechanism, str(count), f"{sensitivity:.6g}", f"{scale:.6g}", f"{count**0.5 * sensitivity / scale:.4g}"]
        for (mechanism, sensitivity, scale), count in list(alike.items())[:MOST_RELEASES]
    ]
    more = len(alike) - len(rows)
    note = f"<p>… and {more} more kinds of release.</p>" if more > 0 else ""
    headings = ["what was released", "times", "sensitivity", "standard deviation of the noise", "μ"]
    listed = table(headings, rows, text_columns=[0])
    return f"<details><summary>Every release that was made</summary>\n{listed}{note}</details>\n"


def clipping_statement(result: AnyResult) -> str:
    """Return what the bound on the norm of rows means for weights; nothing if there is none."""
    bound = getattr(result, "norm_bound", None)
    if bound is None or isinstance(result, AsymmetricDecomposition):
        return ""
    text = (
        f"Clipping biases. Every row longer than {bound:g} was scaled down to that length, and weights are those of "
        "the rows after that: smaller than those of the rows as they were. The errors above are the noise alone and do "
        "not include it. How many rows were so long was not released, since that too would have had a price; the table "
        "is arithmetic for a component whose rows all have one norm."
    )
    rows = [[f"{bound * factor:.4g}", f"{factor**-result.order:.0%}"] for factor in CLIPPED]
    listed = table(["norm of the rows", "share of their weight that is left"], rows, narrow=True)
    return f'<p class="statement warm">{escape(text)}</p>\n{listed}'


def again_section(
    command: str | None, versions: Mapping[str, str] | None = None, *, privacy: PrivacyReport | None = None
) -> Section:
    """Return the section with the command that makes the result again, and the versions; by default those running.

    With the `privacy` of the result it warns that doing so spends once more.
    """
    shown = (
        f"<pre>{escape(command)}</pre>\n" if command else "<p>No command was recorded: it was made from Python.</p>\n"
    )
    if privacy is not None and privacy.private:
        text = (
            f"Running this again spends another ε = {privacy.epsilon:g} of the privacy of every {privacy.unit}, and "
            "gives another result, with other noise. To see this result again, keep its file or this page."
        )
        shown = f'<p class="statement warm">{escape(text)}</p>\n{shown}'
    rows = [[str(name), str(version)] for name, version in (versions or current_versions()).items()]
    return Section("To do it again", shown + table(["made with", "version"], rows, text_columns=[0, 1], narrow=True))

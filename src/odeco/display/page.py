"""The page system: one HTML template, one style sheet, and the parts that every page is made of.

Templates are Jinja's with autoescape: whatever is not `markupsafe.Markup` is text, and is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from odeco._util.extras import needed_by
from odeco._util.files import replacing
from odeco.display.style import DARK, LIGHT, Palette

with needed_by("A page"):
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    Attributes
    ----------
    title : str
        The heading.
    body : str
        What stands below: HTML as `markupsafe.Markup`, as `table`, `Figures` and `parts` return it. A plain str is
        text, and is escaped.
    lead : str
        A sentence below the heading.
    name : str
        The CSS class of the section.
    anchor : str
        The id of the heading, for links.
    """

    title: str
    body: str
    lead: str = ""
    name: str = ""
    anchor: str = ""


def asset(package: str, name: str) -> str:
    """Return the text of a template, style sheet or script that a package brings."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def parts(package: str = "odeco.display", name: str = "parts.html") -> Any:
    """Return the macros of a template, which are functions that return `markupsafe.Markup`."""
    return _environment().get_template(f"{package}/{name}").module


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(lambda name: asset(*name.split("/"))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text_columns: Iterable[int] = (),
    narrow: bool = False,
    stacked: bool = False,
) -> Markup:
    """Return an HTML table. A column is set flush right, as numbers are, unless it is one of `text_columns`.

    A `stacked` table has many columns: on a phone every row becomes a list of headings and values.
    """
    kind = "narrow" if narrow else "stacked" if stacked else ""
    made: Markup = parts().table(columns, list(rows), set(text_columns), kind)
    return made


def beside(*figures: str, narrow: bool = False) -> Markup:
    """Return figures beside each other as far as there is room; `narrow` ones need less of it."""
    return Markup('<div class="{}">\n{}</div>\n').format("cards" if narrow else "beside", Markup().join(figures))


def write_page(
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    sections: Iterable[Section],
    facts: Mapping[str, str] | None = None,
    style: str = "",
    script: str = "",
    verdict: str = "",
) -> None:
    """Write a page to `path`, atomically.

    Parameters
    ----------
    path : path
        Where to write. An old file is replaced only by a complete one.
    title, subtitle : str
        The heading, and a line below it.
    sections : iterable of Section
        What the page holds, from top to bottom.
    facts : mapping, optional
        Names and values to show at the top.
    style : str
        CSS that only this page needs.
    script : str
        JavaScript of this page. No other script runs, because the policy of the page names the hash of this one.
    verdict : str
        The result in one sentence, above everything else.
    """
    template = _environment().get_template("odeco.display/page.html")
    text = template.render(
        title=title,
        verdict=verdict,
        subtitle=subtitle,
        sections=list(sections),
        facts=facts or {},
        light=_variables(LIGHT),
        dark=_variables(DARK),
        style=Markup(asset("odeco.display", "page.css") + style),  # noqa: S704 - assets of odeco
        script=Markup(script),  # noqa: S704 - an asset of odeco
        script_hash=_hash_of(script),
    )
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _hash_of(script: str) -> str:
    """Return the hash of a script, as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _variables(palette: Palette) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in palette.variables.items())

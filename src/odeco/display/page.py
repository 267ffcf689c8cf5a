"""The page itself: headings, tables and style. Every text that it is given is escaped."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from odeco._util.files import replacing

#: Colours by their purpose, on a light and on a dark page. The colours of series differ in lightness, too.
LIGHT = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#1b1f24",
    "muted": "#5b6570",
    "line": "#d8dde3",
    "accent": "#1f5fbf",
    "warm": "#b4530a",
    "good": "#1a7f4b",
    "bad": "#b3261e",
}

DARK = {
    "paper": "#14171b",
    "panel": "#1c2026",
    "ink": "#e6e9ed",
    "muted": "#9aa5b1",
    "line": "#343b44",
    "accent": "#7db0ff",
    "warm": "#f0a35e",
    "good": "#5fcf95",
    "bad": "#ff8a80",
}

SERIES = {
    "s0": ("#1f5fbf", "#7db0ff"),
    "s1": ("#b4530a", "#f0a35e"),
    "s2": ("#1a7f4b", "#5fcf95"),
    "s3": ("#8a3ab9", "#cf9bf0"),
    "s4": ("#0b7285", "#5cc8d7"),
    "s5": ("#a61e4d", "#ff8fb1"),
    "s6": ("#5f6b12", "#c6d15a"),
    "s7": ("#495057", "#c3cad2"),
}


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    Attributes
    ----------
    title : str
        The heading, as text.
    body : str
        HTML, made with `table`, `Figures` or `escape`.
    lead : str
        A sentence below the heading, as text.
    name : str
        The class of the section, for style and script.
    """

    title: str
    body: str
    lead: str = ""
    name: str = ""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text_columns: Iterable[int] = (),
    narrow: bool = False,
    stacked: bool = False,
) -> str:
    """Return an HTML table. A column is set flush right, as numbers are, unless it is one of `text_columns`.

    A `stacked` table has many columns: on a phone every row becomes a list of headings and values.
    """
    texts = set(text_columns)

    def cell(tag: str, position: int, value: str) -> str:
        kind = "" if position in texts else ' class="number"'
        scope = ' scope="col"' if tag == "th" else ""
        label = f' data-label="{escape(columns[position])}"' if stacked and tag == "td" else ""
        return f"<{tag}{kind}{scope}{label}>{escape(value)}</{tag}>"

    head = "".join(cell("th", position, name) for position, name in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(cell("td", position, value) for position, value in enumerate(row)) + "</tr>\n" for row in rows
    )
    kind = ' class="narrow"' if narrow else ' class="stacked"' if stacked else ""
    heading = f"<thead><tr>{head}</tr></thead>\n" if any(columns) else ""
    return f'<div class="wide"><table{kind}>\n{heading}<tbody>\n{body}</tbody>\n</table></div>\n'


def tiles(facts: Mapping[str, str]) -> str:
    """Return facts as a row of tiles: a name in small letters, a value in large ones."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="tiles">{shown}</dl>\n'


def beside(*figures: str, narrow: bool = False) -> str:
    """Return figures beside each other as far as there is room; `narrow` ones need less of it."""
    return f'<div class="{"cards" if narrow else "beside"}">\n{"".join(figures)}</div>\n'


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
        The heading, and a line below it, as text.
    sections : iterable of Section
        What the page holds, from top to bottom.
    facts : mapping, optional
        Names and values to show at the top, as text.
    style : str
        CSS that only this page needs.
    script : str
        JavaScript of this page. No other runs, as the policy of the page names the hash of this one.
    verdict : str
        What the page says, in one sentence, above all else.
    """
    body = "".join(
        f"<section{_named(each.name)}>\n<h2>{escape(each.title)}</h2>\n"
        + (f'<p class="lead">{escape(each.lead)}</p>\n' if each.lead else "")
        + f"{each.body}</section>\n"
        for each in sections
    )
    text = _PAGE.format(
        title=escape(title),
        verdict=f'<p class="verdict">{escape(verdict)}</p>\n' if verdict else "",
        subtitle=escape(subtitle),
        style=_STYLE.replace("LIGHT", _variables(LIGHT, 0)).replace("DARK", _variables(DARK, 1)) + style,
        facts=tiles(facts) if facts else "",
        body=body,
        policy=f"script-src '{_hash_of(script)}'; " if script else "",
        script=f"<script>{script}</script>\n" if script else "",
        runs="runs only the script inside it" if script else "runs no script",
    )
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _named(name: str) -> str:
    return f' class="{escape(name)}"' if name else ""


def _hash_of(script: str) -> str:
    """Return the hash of a script, as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _variables(colours: Mapping[str, str], which: int) -> str:
    named = {**colours, **{name: pair[which] for name, pair in SERIES.items()}}
    return "".join(f"--{name}:{value};" for name, value in named.items())


# The policy allows only what is inside the page: nothing is fetched, and no script runs but the page's own, if any.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="odeco">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {policy}style-src 'unsafe-inline'; \
img-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
{verdict}<p>{subtitle}</p>
</header>
<main>
{facts}{body}</main>
<footer><p>Made by odeco. This page is one file: it fetches nothing and {runs}.</p></footer>
{script}</body>
</html>
"""


_STYLE = """:root { color-scheme: light dark; LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .35rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .35rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
header p, .lead, footer { color: var(--muted); margin: 0 0 1rem; }
header p.verdict { color: var(--ink); font-size: 1.15rem; font-weight: 600; margin: .5rem 0 .35rem; }
.lead { max-width: 46rem; }
footer { margin-top: 3rem; font-size: .85rem; border-top: 1px solid var(--line); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0 0; }
.tiles div { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.tiles dt { color: var(--muted); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
table.narrow { width: auto; min-width: 22rem; }
th { text-align: left; color: var(--muted); font-weight: 600; font-size: .8rem; vertical-align: bottom; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); }
td { vertical-align: top; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
figure { margin: .75rem 0 0; overflow-x: auto; }
figure svg { width: 100%; height: auto; display: block; }
.beside, .cards { display: grid; gap: 0 1.5rem; align-items: start; }
.beside { grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.cards { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
figure svg text { font-family: inherit !important; }
figcaption { color: var(--muted); font-size: .85rem; }
.statement { background: var(--panel); border-left: 4px solid var(--accent); border-radius: 0 .5rem .5rem 0;
  padding: .75rem 1rem; margin: .75rem 0; }
.statement.warm { border-left-color: var(--warm); }
.statement.bad { border-left-color: var(--bad); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem;
  overflow-x: auto; font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin-top: .75rem; } summary { cursor: pointer; color: var(--accent); }
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 2rem; }
  table.stacked thead { display: none; }
  table.stacked, table.stacked tbody, table.stacked tr { display: block; }
  table.stacked tr { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
    padding: .4rem .75rem; margin: 0 0 .6rem; }
  table.stacked td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .12rem 0;
    text-align: right; white-space: normal; }
  table.stacked td:first-child { font-weight: 600; }
  table.stacked td:not(.number) { display: block; text-align: left; }
  table.stacked td::before { content: attr(data-label); color: var(--muted); font-weight: 400; }
  table.stacked td:not(.number)::before { display: block; }
  table.narrow { min-width: 0; width: 100%; } th.number { white-space: normal; } }
@media print { body { max-width: none; } section { break-inside: avoid; } }"""

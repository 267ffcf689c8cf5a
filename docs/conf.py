"""How the documentation is built: `make docs`. No network is used."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx_gallery.sorting import FileNameSortKey

import odeco

project = "odeco"
author = "The odeco developers"
copyright = author  # noqa: A001 - Sphinx reads this name
release = version = odeco.__version__

extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    *(
        f"{made}/*.{kind}"
        for made in ("gallery", "tutorials")
        for kind in ("ipynb", "py", "md5", "json")
    ),
]
default_role = "autolink"  # `name` in a docstring becomes a link if there is such a name
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]  # cards within cards

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc shows the types that the docstrings name
autodoc_default_options = {"members": True, "inherited-members": "Exception"}
numpydoc_show_class_members = False  # autodoc lists them already

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/tutorials", "../examples/gallery"],
    "gallery_dirs": ["tutorials", "gallery"],
    "filename_pattern": r"plot_",
    "within_subsection_order": FileNameSortKey,
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "capture_repr": (),  # what is printed is shown, the last value of a block is not
}

html_theme = "pydata_sphinx_theme"
html_title = "odeco"
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 9,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
html_copy_source = False

suppress_warnings = [
    "config.cache"
]  # the order of examples is given by a class, which the cache cannot keep


def escape_marks(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Take |u| and names_ in prose literally: docstrings are written to be read as they are."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            escaped = re.sub(r"(?<![\\`])\|", r"\\|", line)
            lines[number] = re.sub(r"(?<=\w)_(?=[\s,.;:)]|$)(?![^`]*`)", r"\\_", escaped)


#: Pages whose code is run when they are built; below each block stands what it printed, and its
#: figure if it drew one.
EXECUTED = ("getting-started",)


def run_code(app: Any, docname: str, source: list[str]) -> None:
    """Run the Python blocks of a page in their order, and put below each what it printed and
    drew.
    """
    if docname not in EXECUTED:
        return
    known: dict[str, Any] = {}
    pictures = Path(app.srcdir) / "_build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)

    def with_output(block: re.Match[str]) -> str:
        printed, figure = io.StringIO(), known.get("figure")
        with contextlib.redirect_stdout(printed):
            exec(compile(block[1], docname, "exec"), known)  # noqa: S102 - the code of our own page
        made = block[0] + (f"\n```text\n{printed.getvalue()}```\n" if printed.getvalue() else "")
        if known.get("figure") is not figure:
            path = pictures / f"{docname}-{len(list(pictures.iterdir()))}.png"
            known["figure"].savefig(path, dpi=120)
            made += f"\n![What the code above draws](/_build/pictures/{path.name})\n"
        return made

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        source[0] = re.sub(
            r"^```python\n(.*?)^```\n", with_output, source[0], flags=re.DOTALL | re.MULTILINE
        )


def import_records() -> Any:
    """Return `benchmarks/run.py`, which reads the records."""
    folder = str(Path(__file__).resolve().parent.parent / "benchmarks")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module("run")


def show_records(app: Any, docname: str, source: list[str]) -> None:  # noqa: ARG001
    """Put the record of a benchmark in place of ``{record} name``; see `benchmarks/run.py`."""
    records = import_records()
    if "{mutants}" in source[0]:
        source[0] = source[0].replace("{mutants}", table_of_mutants())
    source[0] = re.sub(
        r"^\{record\} (\S+)$",
        lambda found: records.Record.load(found[1]).to_markdown(),
        source[0],
        flags=re.MULTILINE,
    )


def table_of_mutants() -> str:
    """Return the edits of `tools/mutants.py` and the tests that must notice them."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
    mutants: Any = import_module("mutants")
    lines = ["| what the edit breaks | the tests that must notice |", "|---|---|"]
    lines += [f"| {each.breaks} | `{each.tests}` |" for each in mutants.MUTANTS]
    return "\n".join(lines)


def list_stale_records(app: Any, error: Exception | None) -> None:
    """Print the records that are older than the code that they are about, and the words."""
    if error is not None:
        return
    records = import_records()
    for path in sorted(records.RESULTS.glob("*.json")):
        changed = records.stale_packages(records.Record.load(path.stem))
        if changed:
            sys.stderr.write(f"stale record {path.stem}: {', '.join(changed)} changed since\n")
    pages = [
        page
        for page in Path(app.srcdir).rglob("*.md")
        if not {"_build", "generated"} & set(page.parts)
    ]
    readme = Path(app.srcdir).parent / "README.md"
    n_words = sum(len(page.read_text(encoding="utf-8").split()) for page in [*pages, readme])
    sys.stderr.write(f"{n_words:,} words of documentation\n")


def skip_foreign(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:  # noqa: ARG001
    """Leave out what comes from scikit-learn: its docstrings refer to its own pages."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn") else None


def setup(app: Any) -> None:
    """Connect the above, before numpydoc reads the lines."""
    app.connect("source-read", run_code)
    app.connect("source-read", show_records)
    app.connect("build-finished", list_stale_records)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", escape_marks, priority=100)

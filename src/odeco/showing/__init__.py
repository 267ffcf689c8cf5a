"""Results for people: tables, sentences and pictures, the same in Python, in notebooks, on the terminal and on pages.

`_tables.py` has the numbers and names of a result by columns, `_words.py` the sentences below them, `_displays.py` the
pictures, in the colours of `_palette.py` and together in `_picture.py`; `_shown.py` is what every result can do with
them; `_progress_bar.py` shows how far a long call is. Matplotlib is imported when something is drawn.
"""

from odeco.showing._displays import (
    ConvergenceDisplay,
    CosinesDisplay,
    LeadingDisplay,
    VectorDisplay,
    WeightsDisplay,
)
from odeco.showing._palette import Palette, any_script
from odeco.showing._progress_bar import following
from odeco.showing._shown import Shown
from odeco.showing._tables import (
    Column,
    cells_of,
    columns_of,
    coordinate_labels,
    leading,
    leading_text,
    numbers_of,
    printable,
)
from odeco.showing._words import clipping_sentence, privacy_sentence, remarks_on, rows_read

__all__ = [
    "Column",
    "ConvergenceDisplay",
    "CosinesDisplay",
    "LeadingDisplay",
    "Palette",
    "Shown",
    "VectorDisplay",
    "WeightsDisplay",
    "any_script",
    "cells_of",
    "clipping_sentence",
    "columns_of",
    "coordinate_labels",
    "following",
    "leading",
    "leading_text",
    "numbers_of",
    "printable",
    "privacy_sentence",
    "remarks_on",
    "rows_read",
]

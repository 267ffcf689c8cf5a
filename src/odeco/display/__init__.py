"""Results for people: tables, figures, HTML pages and progress bars."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)

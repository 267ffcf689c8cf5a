"""A result as one HTML page that needs no network: figures inline, light and dark; that of topics has a script inside.

`write_report` makes the page of a result, `write_topics_report` that of topics, `write_model_report` that of
another model. `write_page`, `Section`, `table`, `Figures`, `privacy_section` and `again_section` are what they are made
of, for pages about something else.
"""

from odeco._extras import needed_by

with needed_by("odeco.report"):
    from odeco.report._figures import COLOURS, Figures
    from odeco.report._models import write_model_report
    from odeco.report._page import Section, table, write_page
    from odeco.report._statements import again_section, privacy_section
    from odeco.report._topics import write_topics_report
    from odeco.report._write import write_report

__all__ = [
    "COLOURS",
    "Figures",
    "Section",
    "again_section",
    "privacy_section",
    "table",
    "write_model_report",
    "write_page",
    "write_report",
    "write_topics_report",
]

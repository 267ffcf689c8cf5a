from odeco.io.coerce import as_source as as_source
from odeco.io.reading import rebatch as rebatch
from odeco.io.reading import skip_rows as skip_rows
from odeco.io.source import BatchSource as BatchSource

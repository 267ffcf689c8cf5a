from odeco.datasets.corpora import Document as Document
from odeco.datasets.corpora import python_code as python_code
from odeco.datasets.corpora import python_documentation as python_documentation
from odeco.datasets.planted import appendix_a as appendix_a
from odeco.datasets.planted import gaussian_noise as gaussian_noise
from odeco.datasets.planted import planted_independent as planted_independent
from odeco.datasets.planted import planted_orthogonal as planted_orthogonal

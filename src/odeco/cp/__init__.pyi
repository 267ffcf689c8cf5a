from odeco.cp.rank import RankEvidence as RankEvidence
from odeco.cp.whitening import Whitened as Whitened
from odeco.cp.whitening import Whitener as Whitener

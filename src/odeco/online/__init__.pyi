from odeco.online.decomposer import OnlineDecomposer as OnlineDecomposer
from odeco.online.halves import SplitHalf as SplitHalf
from odeco.online.halves import split_half as split_half
from odeco.online.moments import SampleMoment as SampleMoment
from odeco.online.moments import StreamMoment as StreamMoment
from odeco.online.run import Progress as Progress
from odeco.online.stream import decompose_stream as decompose_stream
from odeco.online.sums import RowSum as RowSum

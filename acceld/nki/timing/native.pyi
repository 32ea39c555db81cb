from collections.abc import Mapping

from acceld.chips import ChipSpec
from acceld.nki.timing.cost import CostModel
from acceld.nki.timing.expansion import Prepared
from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.sbuf_allocation import Machine
from acceld.nki.timing.value_numbering import Stream

BUILT_FROM: str

def expand(prepared: Prepared, *, numbering: bool) -> Stream: ...
def plan(stream: Stream, model: CostModel, params: TimelineParams, chip: ChipSpec) -> Machine: ...
def schedule(
    machine: Machine, params: TimelineParams, chip: ChipSpec, not_before: Mapping[int, float] | None = None
) -> Schedule: ...

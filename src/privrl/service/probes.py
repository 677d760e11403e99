"""How long a request would wait, measured by requests that the service sends itself once a second.

Times of people's own requests would tell something about their records: that one came, and when. These are taken at
times that depend on nobody: what everything that needs no commit waits for (`loop`, the event loop), and what a
record or a ticket waits for besides (`writer`, the queue and the commit).
"""

import asyncio
import math

from privrl.service.counters import Latest
from privrl.service.refusals import RefusedError
from privrl.service.registry import AbstractServed, Studies

LOOP, WRITER = "loop", "writer"
_EVERY = 1.0


async def probing(studies: Studies, every: float = _EVERY) -> None:
    """Probes for ever; cancel it to end."""
    loop = asyncio.get_running_loop()
    under_way: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            _add(studies.counters.seconds[LOOP], loop.time() - due, every)
            for served in studies:
                if served.name not in under_way or under_way[served.name].done():
                    under_way[served.name] = loop.create_task(_writer(served, every))
    finally:
        for task in under_way.values():
            task.cancel()


async def _writer(served: AbstractServed, every: float) -> None:
    began = asyncio.get_running_loop().time()
    try:
        await served.in_writer(lambda store: None)
    except RefusedError:
        return  # its state says why
    _add(served.counters.seconds[WRITER], asyncio.get_running_loop().time() - began, every)


def _add(latest: Latest, waited: float, every: float) -> None:
    """A probe, and those that would have been sent while it waited."""
    for missed in range(math.floor(max(0.0, waited) / every) + 1):
        latest.add(max(0.0, waited - missed * every))

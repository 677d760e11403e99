"""How long a request would wait, measured by requests that the service sends itself once a second.

Times of people's own requests would reveal that a record came, and when. Probes are sent at times that do not depend on
requests. `loop` is the wait for the event loop, which every request has. `writer` is the wait for the queue and the
commit, which records and tickets have besides.
"""

import asyncio
import math
import time

from privrl.service.counters import Measurements
from privrl.service.refusals import RefusedError
from privrl.service.served_studies import AbstractServedStudy, ServedStudies

LOOP, WRITER = "loop", "writer"
_PROBE_SECONDS = 1.0


async def probe(studies: ServedStudies, every: float = _PROBE_SECONDS) -> None:
    """Send probes until cancelled."""
    loop = asyncio.get_running_loop()
    pending: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            _add_probe(studies.counters.seconds[LOOP], loop.time() - due, every)
            for study in studies:
                if study.name not in pending or pending[study.name].done():
                    pending[study.name] = loop.create_task(_probe_writer(study, every))
    finally:
        for task in pending.values():
            task.cancel()


async def _probe_writer(study: AbstractServedStudy, every: float) -> None:
    began = asyncio.get_running_loop().time()
    try:
        await study.run_in_writer(lambda store: None)
    except RefusedError:
        return  # the state of the study shows why
    study.counters.last_probe = time.time()
    _add_probe(study.counters.seconds[WRITER], asyncio.get_running_loop().time() - began, every)


def _add_probe(latest: Measurements, waited: float, every: float) -> None:
    """Add a measurement, and those of the probes that would have been sent while this one waited."""
    for missed in range(math.floor(max(0.0, waited) / every) + 1):
        latest.add(max(0.0, waited - missed * every))

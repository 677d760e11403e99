"""Live studies over HTTP: `privrl serve` (the extra `privrl[serve]`).

A study is declared in a file (`study_file.py`), begun once (`opening.py`) and served by a process (`listening.py`). Its
event loop parses requests, checks keys and answers from memory; one thread per study uses the store (`writer.py`).
`central.py` serves an `Agent`, `local.py` a `Server`. Several processes, on one or many machines, may serve the same
study if its store is a PostgreSQL database.

**Formal guarantee.** *Central*: what anyone except the person themselves receives (tickets, actions, plans,
certificates, refusals, figures for the operator) is a function of the request, of arrivals and their times, of the
clock, and of the releases of the study. By the guarantee of `Agent` it is therefore (epsilon, delta)-jointly
differentially private, under the certificate's statement about arrivals. The response to a request that carries a
record is a function of that request alone: the same bytes if it is counted, was counted before, or comes too late. The
number of people counted appears in no response and no figure. *Local*: reports are private before they are sent; the
service adds each one once, or refuses it. Everything that was answered is on disk, and nothing counts twice, whichever
process is killed at whichever moment.

Assumed, not proved: in a central study the machine, its store and the apps' back ends are trusted, and TLS and the keys
keep others out. *Not covered*: the duration of a response beyond its fixed part (`writer.MIN_RESPONSE_SECONDS`), the
load of the service at a moment (`busy`), and what the network reveals about who sends requests when.
"""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from privrl.service.app_client import AppClient, Arrival, AsyncAppClient, ServiceError

__all__ = ["AppClient", "Arrival", "AsyncAppClient", "ServiceError"]

__getattr__, __dir__ = _lazy_names(__name__)

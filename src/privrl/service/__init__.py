"""Live studies over HTTP: `privrl serve` (the extra `privrl[serve]`).

A study is declared in a file (`study_file.py`), begun once (`opening.py`) and served by a process (`listening.py`): an
event loop that parses, checks keys and answers from memory, and one thread per study that has its store (`writer.py`).
Central studies (`central.py`) have an `Agent` behind them, local ones (`local.py`) a `Server`. Several processes, on
one machine or many, may serve the same study on one PostgreSQL database.

**Formal guarantee.** *Central*: what anybody but the person themselves is answered (tickets, actions, plans,
certificates, refusals, figures for the operator) is a function of the request, of who arrived and when, of the clock,
and of the releases of the study; so, with the guarantee of `Agent`, it is (epsilon, delta)-jointly differentially
private, given what the certificate says about arrivals. To a request that carries a record the answer is a function of
that request alone: the same bytes whether it was counted, had been before, or came too late. The number of people who
were counted is in no answer and no figure. *Local*: reports are private before they are sent; the service adds each
one once, or refuses it. Whatever was answered is on disk, and nothing counts twice, whichever process was killed when.

Assumed, and not proved: the machine, its store and the apps' back ends are trusted in a central study; TLS and the
keys keep others out. *Not covered*: the time that an answer takes beyond the fixed part (`writer.BEAT`), how busy the
service is at a moment (`busy`), and what the network shows of who asks when.
"""

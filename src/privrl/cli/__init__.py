"""The command line: `privrl demo`, `list`, `fit`, `evaluate`, `run`, `audit`, `reproduce`, `report`, `certify`, `cite`,
`bench` and `store`.

Results go to standard output, and with `--json` they are exactly one JSON object; everything else goes to standard
error. A command that fails prints the reason there, and with `--json` also the object {"error": REASON}. Exit codes: 0
fine, 2 bad input, 1 failure, 3 not shown to be better (`--require-better`). On an error nothing is left behind.
Tracebacks are not shown (set `PRIVRL_TRACEBACK=1` to see them), and local variables never are: they may hold people's
records.
"""

from privrl.cli.main import main

__all__ = ["main"]

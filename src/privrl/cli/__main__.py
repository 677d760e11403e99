"""`python -m privrl.cli`: the command line without its script."""

import sys

from privrl.cli import main

if __name__ == "__main__":
    sys.exit(main())

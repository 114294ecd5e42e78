"""`python -m rollout_fsm`: the command line."""

import sys

from rollout_fsm.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m rollout_fsm.simulation [--many] FILE…`: outcomes on standard output, complaints on standard error."""

import argparse
import sys

from rollout_fsm.simulation.files import simulate_files


def main() -> int:
    """Play the files that the arguments name. Returns an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rollout_fsm.simulation", description="Play scenarios in virtual time."
    )
    parser.add_argument("--many", action="store_true", help="several files, one outcome a line")
    parser.add_argument("files", nargs="+", help="scenarios or cases, as JSON")
    given = parser.parse_args()
    return simulate_files(
        given.files,
        many=given.many,
        write=lambda line: sys.stdout.write(f"{line}\n"),
        complain=lambda text: sys.stderr.write(f"{text}\n"),
    )


if __name__ == "__main__":
    sys.exit(main())

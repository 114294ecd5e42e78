"""`python -m tests.benchmarks`. It imports the rest where Ctrl-C is expected: that takes a noticeable while."""

import sys


def main() -> int:
    """The command. Returns an exit code."""
    try:
        from tests.benchmarks import command

        return command.main()
    except KeyboardInterrupt:
        sys.stderr.write("python -m tests.benchmarks: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())

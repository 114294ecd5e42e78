"""The command line of tests/cli, for properties that end there."""

from tests.cli.conftest import cli

__all__ = ["cli"]

"""What things cost, as scripts that print numbers: `python -m tests.benchmarks.NAME`. No test runs them."""

"""What things cost. `python -m tests.benchmarks` measures and compares (`--small --runs 1` for a first try): `works`
says what, `sampling` how, `baseline` beside what; `results` keeps what `readme` shows. `--table FILE … --keep` makes
the README's table of files of `--json`; `--table` alone prints the one of what is kept.

`ours` and `gateway` are the works on this side, `peer` and `peer_gateway` the same on the peer's: programs that print
their figures. Two more look closer: `python -m tests.benchmarks.waiting` at memory, `….kept` at the disk. The tests see
that everything runs; they look at no time.
"""

"""What things cost. `python -m tests.benchmarks` measures and compares: `works` says what, `sampling` how;
`results` keeps what `readme` shows.

`ours` and `gateway` are the works on this side, `peer` and `peer_gateway` the same on the peer's: programs that print
their figures. Two more look closer: `python -m tests.benchmarks.waiting` at memory, `….kept` at the disk. The tests see
that everything runs; they look at no time.
"""

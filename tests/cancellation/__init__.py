"""A rollout interrupted at every scheduling point: what is played (`plan`, `cases`, `ways`, `faults`), how (`schedule`,
`stage`, `life`, `playing`), and what the rules say must come of it (`verdict`); `sweeps` plays many.

A failure names its plan, and `python -m tests.cancellation 'PLAN'` plays just that one.
"""

"""A rollout interrupted at every scheduling point: what is played (`plan`, `cases`, `ways`, `faults`), how (`schedule`,
`stage`, `playing`), and what the rules say must come of it (`verdict`).

A failure names its plan, and `python -m tests.cancellation 'PLAN'` plays just that one.
"""

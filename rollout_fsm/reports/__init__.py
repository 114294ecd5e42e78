"""What can be said about traces: the numbers of a run, and one rollout from beginning to end. No screen, no colours."""

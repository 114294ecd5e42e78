"""Tool servers: how a rollout's tools are served, and those that are somebody else's."""

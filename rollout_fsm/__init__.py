"""An engine for LLM-agent rollouts: a lifecycle that is declared, executed from its declaration, proven and drawn."""

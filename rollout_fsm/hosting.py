"""What an engine holds open across calls, each in a task of its own."""

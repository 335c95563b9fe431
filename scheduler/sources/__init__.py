"""Where the state of hosts comes from."""

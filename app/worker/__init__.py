"""How a builder works: a fresh child process per attempt, what it says, and how it is watched, stopped and reaped."""

"""What the commands do, each told from top to bottom."""

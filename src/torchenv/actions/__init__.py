"""What the commands do: each told top to bottom, over ports that a test can stand in for."""

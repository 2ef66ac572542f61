"""What a machine has, and the probe that looks."""

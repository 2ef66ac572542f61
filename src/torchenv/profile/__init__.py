"""What a person or a team wants of an environment."""

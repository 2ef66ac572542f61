"""PEP 751 lock files, and the set of a team's."""

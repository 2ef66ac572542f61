"""What a package index serves, and the way to it."""

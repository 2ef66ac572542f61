"""The workspace: its manifest, and the only reader and writer of its files."""

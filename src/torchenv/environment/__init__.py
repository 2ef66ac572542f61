"""Environments on disk: read, fingerprinted, verified."""

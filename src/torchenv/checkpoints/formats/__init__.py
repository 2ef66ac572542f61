"""The formats of checkpoints: bytes in, facts out; no pickle is ever run."""

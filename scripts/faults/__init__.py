"""What may befall a workspace, many times over, with the real uv on a loopback index: see `scripts/chaos`."""

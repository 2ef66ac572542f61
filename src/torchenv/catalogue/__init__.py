"""What PyTorch publishes: releases, their builds, and what each build needs of a machine.

Every fact is data (`data/catalogue.toml`, or a user's own file); nothing here holds a backend's tag.
"""

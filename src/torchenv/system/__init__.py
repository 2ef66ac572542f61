"""The operating system: programs, processes, the disk, and documents on it."""

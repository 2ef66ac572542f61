"""Take the step to a new PyTorch release without fear, and the step back."""

__version__ = "0.2.0"

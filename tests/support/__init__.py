"""What several tests need: small honest wheels and the loopback index that serves them."""

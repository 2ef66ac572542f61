"""Scripts that an environment's own interpreter runs; torchenv itself never imports them."""

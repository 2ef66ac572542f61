"""Values turned into what people and programs read."""

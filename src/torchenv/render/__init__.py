"""Values to what people and programs read: text, JSON, HTML."""

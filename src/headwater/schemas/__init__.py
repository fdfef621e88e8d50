"""Schemas and their registry: three kinds of schemas, what is compatible with what, and who has registered which."""

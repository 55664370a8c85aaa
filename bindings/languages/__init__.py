"""Generators of raw layers, one for each language: generate(description) gives {path in the repository: text}."""

"""Checkpoints of language models, and series of them: folders, Lightning files, the Hub."""

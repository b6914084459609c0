"""LightningModules of the toolkit."""

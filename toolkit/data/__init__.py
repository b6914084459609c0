"""LightningDataModules of the toolkit."""

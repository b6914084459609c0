"""The terminal: messages, progress bars, tables, and the parsers of command lines."""

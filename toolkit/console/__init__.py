"""What a person sees: messages, bars, tables, and the parsers of what was typed."""

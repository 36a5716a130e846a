"""The mark: what it is bound to, its carriers, how it is embedded and stored."""

"""A client's own settings: our entries put in and taken out, every other byte left alone."""

"""How many tokens should the draft propose? Measure acceptance, then decide."""

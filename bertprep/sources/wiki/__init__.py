"""Pages of wikis become prose: the wikitext of dumps, and the plain text of the Hub's extraction, by the same rules."""

"""Wikimedia's dumps: articles as a stream, and their wikitext cleaned to prose."""

"""Forecasts: records made of a few pieces of a text by a process like `create`'s, and what a training run makes of records."""

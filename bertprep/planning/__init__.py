"""Forecasts of `create` from records made of a few pieces of text, and of a training run on records."""

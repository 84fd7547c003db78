"""Caps what a public AI route can cost, before the call is made."""

__version__ = "0.1.0"

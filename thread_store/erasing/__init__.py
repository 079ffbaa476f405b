"""Erasing: a record is overwritten in its place, and everything that was made of it goes too.

A floor of its own, beneath the stores: `erase` is what they call.
"""

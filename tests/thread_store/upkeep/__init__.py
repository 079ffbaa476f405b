"""Tests of what is done to threads that nobody writes."""

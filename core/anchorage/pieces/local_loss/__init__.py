"""Losses on labelled images."""

"""Anchorage: one medical-image model across silos that cannot pool their images."""

__version__ = "0.1.0"

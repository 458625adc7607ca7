"""The agent at a hospital."""

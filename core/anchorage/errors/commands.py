"""Failures of the command line and the local runner: 50xx."""


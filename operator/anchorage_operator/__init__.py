"""The operator: turns Federation and Silo resources into pods, certificates and status."""

"""Secure aggregation (Bonawitz et al. 2017): the server learns the sum of the silos' numbers, and no single one."""

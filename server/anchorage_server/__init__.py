"""The aggregation server as a process."""

"""What holds local training near the global model."""

"""Images, networks, the training loop and metrics: what every method trains with, knowing none of them."""

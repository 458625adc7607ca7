"""The Kubernetes API for operator and command line. Only this package knows the Kubernetes library, and loads it with the first connection."""

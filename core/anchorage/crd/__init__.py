"""The CustomResourceDefinitions, generated from the spec and the built-in methods: ``python -m anchorage.crd crds``."""

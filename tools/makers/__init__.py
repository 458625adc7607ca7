"""What makes files from the source, a module per kind: ``files(root)`` maps paths below the checkout to their texts."""

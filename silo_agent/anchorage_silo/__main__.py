"""``python -m anchorage_silo``."""

from anchorage_silo.main import main

main()

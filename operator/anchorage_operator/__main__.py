"""``python -m anchorage_operator``."""

import sys

from anchorage_operator.main import main

if __name__ == "__main__":
    sys.exit(main())

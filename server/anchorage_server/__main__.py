"""``python -m anchorage_server``."""

import sys

from anchorage_server.main import main

sys.exit(main())

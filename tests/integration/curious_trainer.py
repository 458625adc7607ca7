"""A trainer that first tries to read what is its agent's, and tells what became of that: ``python curious_trainer.py STATE``."""

import sys
from pathlib import Path

from anchorage_silo.trainer import main

for name in ("silo.key", "silo.crt", "audit.jsonl", "audit.key", "audit.head", "lock", "../token"):
    try:
        Path(sys.argv[1], name).read_bytes()
    except OSError as error:
        sys.stderr.write(f"{name}: {type(error).__name__}\n")
    else:
        sys.stderr.write(f"{name}: READ\n")
main()

"""``python -m spark_eos.cli``."""

import sys

from spark_eos.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m stallbook`: the command line."""

import sys

from stallbook.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Run the command ``acceld`` as ``python -m acceld``."""

import sys

from acceld.cli.main import main

sys.exit(main())

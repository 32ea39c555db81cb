"""``python -m acceld`` is the command ``acceld``."""

import sys

from acceld.cli.main import main

sys.exit(main())

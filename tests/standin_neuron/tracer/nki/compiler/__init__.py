"""Stand-in for the compiler of nki 0.7."""

import os

__path__.append(os.path.abspath(__file__ + "/../../../../driver/nki/compiler"))
